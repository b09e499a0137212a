// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loopmq/storage/message"
	"loopmq/storage/vfs"
)

const storeFaultChildEnv = "LOOPMQ_STORE_FAULT_CHILD"

// faultStore is a store on real files, and a way to cut one of them just before an operation.
type faultStore struct {
	*MessageStore
	t    *testing.T
	root string
	cut  chan fileCut // holds the cut to make at the next matching operation
}

type fileCut struct {
	sync    bool   // before a Sync, otherwise before an Allocate
	dir     string // of the operation's file
	victims string // the directory whose files are cut; none: the operation's own file
}

// storeFaults each cut a real file short under its map, so that one kind of goroutine meets it. The result is the
// part of the store whose file the error has to name.
var storeFaults = map[string]func(s *faultStore) string{
	"flush": func(s *faultStore) string {
		s.cut <- fileCut{sync: true, dir: "commitlog", victims: "commitlog"}
		if status := s.put(); status != ServiceNotAvailable {
			s.t.Fatalf("a put whose sync met a cut file ends with %v", status)
		}
		return "commitlog"
	},
	"dispatch reads the log": func(s *faultStore) string {
		s.cut <- fileCut{dir: "consumequeue", victims: "commitlog"}
		s.put()
		return "commitlog"
	},
	"dispatch writes a queue": func(s *faultStore) string {
		s.cut <- fileCut{dir: "consumequeue"}
		s.put()
		return "consumequeue"
	},
	"dispatch writes the index": func(s *faultStore) string {
		s.cut <- fileCut{dir: "index"}
		s.put()
		return "index"
	},
	"flush of queues": func(s *faultStore) string {
		s.cut <- fileCut{sync: true, dir: "consumequeue"}
		s.put()
		return "consumequeue"
	},
	"checkpoint": func(s *faultStore) string {
		s.putDispatched()
		s.truncate([]string{filepath.Join(s.root, "checkpoint")})
		s.put()
		return "checkpoint"
	},
	"pull reads a queue": func(s *faultStore) string {
		s.putDispatched()
		s.truncate(s.files("consumequeue/topic/0"))
		s.pull(nil)
		return "consumequeue"
	},
	"pull filters by the log": func(s *faultStore) string {
		s.putDispatched()
		s.truncate(s.files("commitlog"))
		s.pull(readingFilter{})
		return "commitlog"
	},
	"query reads the index": func(s *faultStore) string {
		s.putDispatched()
		s.truncate(s.files("index"))
		s.QueryMessage("topic", "key", 32, 0, math.MaxInt64).Release()
		return "index"
	},
	"query reads the log": func(s *faultStore) string {
		s.putDispatched()
		s.truncate(s.files("commitlog"))
		s.QueryMessage("topic", "key", 32, 0, math.MaxInt64).Release()
		return "commitlog"
	},
	"look at one message": func(s *faultStore) string {
		s.putDispatched()
		s.truncate(s.files("commitlog"))
		if _, err := s.LookMessageByOffset(0); !errors.Is(err, ErrFault) {
			s.t.Fatalf("look: %v", err)
		}
		return "commitlog"
	},
}

type readingFilter struct{}

func (readingFilter) MatchConsumeQueue(int64) bool      { return true }
func (readingFilter) MatchCommitLog(record []byte) bool { return record[0] == 0 }

// TestStoreLivesWithCutFiles: whoever meets a file that was cut under its map gets an error that names it, the store
// is read-only from then on, and the process lives (golang/go#36109).
func TestStoreLivesWithCutFiles(t *testing.T) {
	for name := range storeFaults {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestStoreFaultChild$", "-test.count=1")
			child.Env = append(os.Environ(), storeFaultChildEnv+"="+name)
			if out, err := child.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// TestStoreFaultChild is a case of TestStoreLivesWithCutFiles, in a process of its own.
func TestStoreFaultChild(t *testing.T) {
	name := os.Getenv(storeFaultChildEnv)
	if name == "" {
		return
	}
	s := openFaultStore(t)
	part := storeFaults[name](s)
	eventually(t, "the store is latched", func() bool { return s.Stats().LatchedCause != nil })
	cause := s.Stats().LatchedCause
	if !strings.Contains(cause.Error(), filepath.Join(s.root, part)) {
		t.Fatalf("%v does not name a file of %s", cause, part)
	}
	if fault := (*FaultError)(nil); errors.As(cause, &fault) && fault.Offset < 0 {
		t.Fatalf("%v does not name a place in the file", cause)
	}
	if status, denied := s.PutDenied(); status != ServiceNotAvailable || !strings.Contains(denied.Error(), cause.Error()) {
		t.Fatalf("puts are denied with %v, %v", status, denied)
	}
	if status := s.put(); status != ServiceNotAvailable {
		t.Fatalf("a put ends with %v", status)
	}
	if err := s.Close(); err != nil {
		t.Logf("close: %v", err) // may fail, may not hang or kill
	}
}

func openFaultStore(t *testing.T) *faultStore {
	t.Helper()
	s := &faultStore{t: t, root: t.TempDir(), cut: make(chan fileCut, 1)}
	c := DefaultConfig()
	c.StorePathRootDir = s.root
	c.FlushDiskType = SyncFlush
	c.MappedFileSizeCommitLog = 64 << 10
	c.MappedFileSizeConsumeQueue = 2000
	c.MaxHashSlotNum, c.MaxIndexNum = 100, 100
	c.FlushIntervalConsumeQueue, c.FlushConsumeQueueThoroughInterval = 10, 10
	var err error
	if s.MessageStore, err = Open(c, Options{FS: cuttingFS{vfs.OS{}, s}, Logger: discardLogger()}); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// files are the files below a directory of the store.
func (s *faultStore) files(part string) (paths []string) {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.root, part))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		paths = append(paths, filepath.Join(s.root, part, e.Name()))
	}
	return paths
}

func (s *faultStore) truncate(paths []string) {
	s.t.Helper()
	for _, path := range paths {
		if err := os.Truncate(path, 0); err != nil {
			s.t.Error(err)
		}
	}
}

// put stores one message and waits for its sync.
func (s *faultStore) put() PutMessageStatus {
	done := make(chan PutMessageStatus, 1)
	r := message.Record{Topic: []byte("topic"), Body: []byte("body"), Properties: message.AppendProperty(nil, message.PropertyKeys, "key")}
	put := &PutMessage{Record: message.AppendRecord(nil, &r), MsgNum: 1, Topic: "topic"}
	put.Appended = func(put *PutMessage, status PutMessageStatus) {
		if status != PutOK {
			done <- status
			return
		}
		s.SubmitFlushRequest(put.End(), time.Now().Add(10*time.Second), func(status PutMessageStatus) { done <- status })
	}
	if status := s.AsyncPutMessage(put); status != PutOK {
		return status
	}
	return <-done
}

func (s *faultStore) putDispatched() {
	s.t.Helper()
	if status := s.put(); status != PutOK {
		s.t.Fatalf("put: %v", status)
	}
	eventually(s.t, "the message is dispatched", func() bool { return s.DispatchBehindBytes() == 0 })
}

func (s *faultStore) pull(filter MessageFilter) {
	s.t.Helper()
	result := s.GetMessage("topic", 0, 0, 32, filter, nil)
	defer result.Release()
	if !errors.Is(result.Err, ErrFault) || len(result.Buffers) > 0 {
		s.t.Fatalf("pull: status %v, %v, %d buffers", result.Status, result.Err, len(result.Buffers))
	}
}

// cuttingFS cuts files when the store asks for an operation that a case waits for.
type cuttingFS struct {
	vfs.OS
	store *faultStore
}

func (f cuttingFS) OpenRegion(path string, size int64, create bool) (vfs.Region, error) {
	r, err := f.OS.OpenRegion(path, size, create)
	if err != nil {
		return nil, err
	}
	return cuttingRegion{r, f.store}, nil
}

func (f cuttingFS) MakeRegion(path string, size int64) (vfs.Region, error) {
	r, err := f.OS.MakeRegion(path, size)
	if err != nil {
		return nil, err
	}
	return cuttingRegion{r, f.store}, nil
}

type cuttingRegion struct {
	vfs.Region
	store *faultStore
}

func (r cuttingRegion) Sync(from, to int64) error {
	r.store.cutBefore(true, r.Path())
	return r.Region.Sync(from, to)
}

func (r cuttingRegion) Allocate(from, to int64) error {
	r.store.cutBefore(false, r.Path())
	return r.Region.Allocate(from, to)
}

func (s *faultStore) cutBefore(sync bool, path string) {
	select {
	case c := <-s.cut:
		if c.sync != sync || !strings.HasPrefix(path, filepath.Join(s.root, c.dir)) {
			s.cut <- c
			return
		}
		victims := []string{path}
		if c.victims != "" {
			victims = s.files(c.victims)
		}
		s.truncate(victims)
	default:
	}
}
