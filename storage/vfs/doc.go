// SPDX-License-Identifier: Apache-2.0

// Package vfs holds the file operations the store needs, as two small interfaces (FS, Region), and their real form
// over mmap-go and x/sys.
package vfs
