// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"unsafe"

	"loopmq/storage/vfs"
)

// ErrFault marks an access to mapped memory that the disk could not serve: a file cut short by someone else, a page
// that cannot be read, a hole that a full disk cannot back.
var ErrFault = errors.New("storage: fault in mapped memory")

// FaultError names the place of a fault.
type FaultError struct {
	Path   string
	Offset int64 // in the file
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("fault in mapped memory at byte %d of %q", e.Offset, e.Path)
}
func (e *FaultError) Unwrap() error { return ErrFault }

// mappings knows every mapped file of the process, because a fault tells an address and nothing else.
var mappings mappingTable

type mappingTable struct {
	mu    sync.Mutex
	files map[*MappedFile]struct{}
}

func (t *mappingTable) add(f *MappedFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files == nil {
		t.files = make(map[*MappedFile]struct{})
	}
	t.files[f] = struct{}{}
}

func (t *mappingTable) remove(f *MappedFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.files, f)
}

// find names the file and offset of an address.
func (t *mappingTable) find(address uintptr) (*FaultError, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.files {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
		if address >= start && address-start < uintptr(len(f.data)) {
			return &FaultError{Path: f.path(), Offset: int64(address - start)}, true
		}
	}
	return nil, false
}

// Whoever touches mapped memory does it between these two lines, so that a fault becomes an error of that operation:
//
//	defer restoreFaults(debug.SetPanicOnFault(true)) // once per goroutine for a goroutine of ours
//	defer catchFault(&err)
//
// restoreFaults sets the goroutine's mode back.
func restoreFaults(old bool) { debug.SetPanicOnFault(old) }

// catchFault is deferred directly. A fault in a mapped file becomes *err; any other panic goes on.
func catchFault(err *error) {
	r := recover()
	if r == nil {
		return
	}
	if fault, ok := asFault(r); ok {
		*err = fault
		return
	}
	panic(r)
}

func asFault(r any) (*FaultError, bool) {
	address, ok := vfs.FaultAddress(r)
	if !ok {
		return nil, false
	}
	return mappings.find(address)
}

// Guard runs f, which reads what a store has lent: a page that the disk does not deliver is an error that names its
// place, not the end of the process.
func Guard(f func()) (err error) {
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer catchFault(&err)
	f()
	return nil
}
