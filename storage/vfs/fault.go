// SPDX-License-Identifier: Apache-2.0

package vfs

// FaultAddress says whether a recovered panic is that of an access to mapped memory that the disk could not serve, and
// where. A goroutine gets it, instead of the end of the process, after debug.SetPanicOnFault(true).
func FaultAddress(recovered any) (address uintptr, ok bool) {
	fault, ok := recovered.(interface{ Addr() uintptr })
	if !ok {
		return 0, false
	}
	return fault.Addr(), true
}
