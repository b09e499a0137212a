// SPDX-License-Identifier: Apache-2.0

package storage

// SelectMappedBufferResult is a loan of bytes of a mapped file: it holds the file's mapping until Release.
// Source: SelectMappedBufferResult.
type SelectMappedBufferResult struct {
	StartOffset PhyOffset
	data        []byte
	file        *MappedFile
}

// Bytes is the borrowed range, capped so that an append cannot write into the log.
func (r *SelectMappedBufferResult) Bytes() []byte { return r.data }

// Release ends the loan; a second call does nothing.
func (r *SelectMappedBufferResult) Release() {
	if r.file != nil {
		f := r.file
		r.file, r.data = nil, nil
		f.release()
	}
}
