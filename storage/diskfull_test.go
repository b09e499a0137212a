// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// fullDiskEnv makes the test binary the child that sees the full disk.
	fullDiskEnv   = "LOOPMQ_FULL_DISK_CHILD"
	fullDiskSize  = "64m"
	fullDiskFiles = 16 << 20
	fullDiskBody  = 512 << 10
)

// On a real file system that is full, sends that need the next file are refused with the cause, pulls work, the
// process lives, the store opens for reading while the disk is still full, and takes messages again when there is space
// (golang/go#36109). The file system is a tmpfs of the child's own.
func TestFullDisk(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run=^TestFullDiskChild$", "-test.count=1")
	child.Env = append(os.Environ(), fullDiskEnv+"="+t.TempDir())
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestFullDiskChild is TestFullDisk, in a user and mount namespace of its own.
func TestFullDiskChild(t *testing.T) {
	dir := os.Getenv(fullDiskEnv)
	if dir == "" {
		return
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+fullDiskSize); err != nil {
		t.Fatalf("mount: %v", err)
	}
	store := openFullDisk(t, dir)
	stored := 0
	for ; putOne(t, store) == nil; stored++ {
		if stored == 8 {
			fillDisk(t, dir)
		}
		if stored > 200 {
			t.Fatal("the disk does not fill up")
		}
	}
	// Which comes first is a race: the next file that cannot be made, or the look at how full the disk is.
	if cause := putOne(t, store); !errors.Is(cause, syscall.ENOSPC) && !errors.Is(cause, errDiskFull) {
		t.Fatalf("refused with %v", cause)
	}
	checkStored(t, store, stored)
	closeStore(t, store)

	store = openFullDisk(t, dir)
	checkStored(t, store, stored)
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "puts accepted", func() bool { return putOne(t, store) == nil })
	checkStored(t, store, stored+1)
	closeStore(t, store)
}

func openFullDisk(t *testing.T, dir string) *MessageStore {
	t.Helper()
	c := DefaultConfig()
	c.StorePathRootDir = filepath.Join(dir, "store")
	c.MappedFileSizeCommitLog = fullDiskFiles
	c.MaxHashSlotNum, c.MaxIndexNum = 1000, 1000
	c.CleanFileForciblyEnable = false
	c.CleanResourceInterval = 200
	store, err := Open(c, Options{Logger: discardLogger()})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Start(); err != nil {
		t.Fatal(err)
	}
	return store
}

// putOne stores a message and returns why it could not.
func putOne(t *testing.T, store *MessageStore) error {
	t.Helper()
	put, done := testPut("topic", 0, fullDiskBody, 1)
	if status := store.AsyncPutMessage(put); status != PutOK {
		_, cause := store.PutDenied()
		if cause == nil {
			return errors.New(status.String()) // it has passed already
		}
		return cause
	}
	if status := <-done; status != PutOK {
		if status != ServiceNotAvailable {
			t.Fatalf("put: %v, %v", status, put.Cause)
		}
		return put.Cause
	}
	return nil
}

// fillDisk leaves no block free.
func fillDisk(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for ; err == nil && len(block) >= 1; block = block[:len(block)/2] {
		for err == nil {
			_, err = f.Write(block)
		}
		if errors.Is(err, syscall.ENOSPC) {
			err = nil
		}
		if len(block) == 1 {
			break
		}
	}
	if err := errors.Join(err, f.Close()); err != nil && !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
}

// checkStored pulls all messages.
func checkStored(t *testing.T, store *MessageStore, want int) {
	t.Helper()
	eventually(t, "dispatched", func() bool { return store.DispatchBehindBytes() == 0 })
	got, body := 0, bytes.Repeat([]byte{1}, fullDiskBody)
	for offset := QueueOffset(0); ; {
		result := store.GetMessage("topic", 0, offset, 32, nil, nil)
		for _, b := range result.Buffers {
			got += bytes.Count(b.Bytes(), body)
		}
		status := result.Status
		offset = result.NextBeginOffset
		result.Release()
		if status != Found {
			break
		}
	}
	if got != want {
		t.Fatalf("%d messages can be pulled, want %d", got, want)
	}
}

func closeStore(t *testing.T, store *MessageStore) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- store.Close() }()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Close hangs")
	}
}
