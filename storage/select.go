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

// BringIn reads the range from the disk where it is not in memory, in large pieces also in a file that is written to, where
// a fault brings in its page alone. It blocks, and is best effort.
func (r *SelectMappedBufferResult) BringIn() {
	from := int64(r.StartOffset) - r.file.base
	_ = r.file.region.WillNeed(from, from+int64(len(r.data)))
}

// Release ends the loan; a second call does nothing.
func (r *SelectMappedBufferResult) Release() {
	if r.file != nil {
		f := r.file
		r.file, r.data = nil, nil
		f.release()
	}
}
