// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"loopmq/storage"
	"loopmq/storage/vfs"
)

// Where the end of a log came from.
const (
	regimeMaster = "MASTER" // written by this node
	regimeSync   = "SYNC"   // taken from a SYNC_MASTER
	regimeAsync  = "ASYNC"  // taken from an ASYNC_MASTER
	regimeOther  = "OTHER"  // taken from a RocketMQ master, which does not tell
)

// stateFile is ha.json: what must outlive the process so that a slave knows what it may cut. PROTOCOL.md has the rules.
type stateFile struct {
	fs   vfs.FS
	path string

	mu    sync.Mutex // guards the rest, also while it is written
	data  stateData
	saved []byte
}

type stateData struct {
	Node   string            `json:"node"`
	Regime string            `json:"regime"`
	Floor  storage.PhyOffset `json:"floor"`
	// SyncFrom is the offset from which on the master was SYNC_MASTER: the one followed, or this node itself; −1 when it is not.
	SyncFrom storage.PhyOffset `json:"syncFrom"`
	// Copying says that the log is a copy that began at the master's first byte and has not caught up once. When the
	// master deletes what it still lacks, it may begin anew.
	Copying bool `json:"copying,omitempty"`
	// Slaves are the loopmq slaves that may have acknowledged what this master's disk does not have yet, by node id, and
	// Boot is the boot of the machine in which they did. Lost says that the machine went down before the disk had it.
	Slaves []string `json:"slaves,omitempty"`
	Boot   string   `json:"boot,omitempty"`
	Lost   bool     `json:"lost,omitempty"`
}

// openState loads the file or makes it. An unreadable one is an error: guessing could lose what was acknowledged.
func openState(fsys vfs.FS, path string) (*stateFile, error) {
	s := &stateFile{fs: fsys, path: path}
	b, err := fsys.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		var id nodeID
		_, _ = rand.Read(id[:]) // never fails
		// Without a history this node's bytes count as its own.
		return s, s.save(stateData{Node: hex.EncodeToString(id[:]), Regime: regimeMaster, SyncFrom: -1})
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &s.data); err != nil {
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	s.saved = b
	if id, err := hex.DecodeString(s.data.Node); err != nil || len(id) != len(nodeID{}) {
		return nil, fmt.Errorf("%q: node is %q, not %d bytes in hex", path, s.data.Node, len(nodeID{}))
	}
	return s, nil
}

// save writes d unless it is what the file holds. It is called with mu held, or before the file is shared.
func (s *stateFile) save(d stateData) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if b = append(b, '\n'); !bytes.Equal(b, s.saved) {
		if err := s.fs.WriteFile(s.path, b); err != nil {
			return fmt.Errorf("save %q: %w", s.path, err)
		}
	}
	s.data, s.saved = d, b
	return nil
}

func (s *stateFile) node() (id nodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, _ := hex.DecodeString(s.data.Node)
	copy(id[:], b)
	return id
}

// floor is the end of what may not be cut, for a log that ends at end.
func (s *stateFile) floor(end storage.PhyOffset) storage.PhyOffset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data.floorAt(end)
}

func (d *stateData) floorAt(end storage.PhyOffset) storage.PhyOffset {
	switch {
	case d.Regime == regimeAsync, d.Regime == regimeSync && end <= d.SyncFrom:
		return min(d.Floor, end)
	default:
		return end
	}
}

// follow is called before the first byte is taken from a master, with the log's end.
func (s *stateFile) follow(regime string, syncFrom, end storage.PhyOffset) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.data
	next.Regime, next.Floor, next.SyncFrom = regime, s.data.floorAt(end), syncFrom
	next.Slaves, next.Boot, next.Lost = nil, "", false // the log is the new master's from now on
	return s.save(next)
}

// copying says whether the log is an unfinished copy.
func (s *stateFile) copying() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data.Copying
}

// setCopying is called before the first byte of a copy is taken, and when the copy has caught up.
func (s *stateFile) setCopying(copying bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.data
	next.Copying = copying
	return s.save(next)
}

// lead is called when this node starts as a master, with the log's end. It returns the offset from which on it is
// SYNC_MASTER, −1 when it is not one.
func (s *stateFile) lead(sync bool, end storage.PhyOffset) (syncFrom storage.PhyOffset, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	syncFrom = -1
	if sync {
		syncFrom = end
		if s.data.Regime == regimeMaster && s.data.SyncFrom >= 0 {
			syncFrom = min(s.data.SyncFrom, end)
		}
	}
	if s.data.Regime == regimeMaster && s.data.SyncFrom == syncFrom {
		return syncFrom, nil
	}
	next := s.data
	next.Regime, next.Floor, next.SyncFrom, next.Copying = regimeMaster, end, syncFrom, false
	return syncFrom, s.save(next)
}

// began is called when the node starts, in any role: clean says that the last run left all of its log on disk, boot
// names the boot of the machine now. What the kernel held for the disk outlives a process, and not the boot. others says
// that another broker has written since: this file knows nothing of what it promised.
func (s *stateFile) began(clean, others bool, boot string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.data
	if others {
		next.Regime, next.SyncFrom, next.Copying = regimeMaster, 0, false
	}
	switch {
	case s.data.Lost:
	case clean:
		next.Slaves, next.Boot = nil, ""
	case len(s.data.Slaves) > 0 && (boot == "" || boot != s.data.Boot):
		next.Lost = true
	}
	return s.save(next)
}

// lost are the slaves that may hold what this log has lost; none when it has lost nothing.
func (s *stateFile) lost() (slaves []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.data.Lost {
		return nil
	}
	return slices.Clone(s.data.Slaves)
}

// note is called before the acknowledgements of a slave count.
func (s *stateFile) note(slave, boot string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.data
	if !slices.Contains(next.Slaves, slave) {
		next.Slaves = append(slices.Clone(next.Slaves), slave)
	}
	next.Boot = boot
	return s.save(next)
}

func (s *stateFile) noted() (slaves []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.data.Slaves)
}

// drop takes out slaves that have acknowledged nothing but what is on disk.
func (s *stateFile) drop(gone []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.data
	next.Slaves = slices.DeleteFunc(slices.Clone(next.Slaves), func(slave string) bool { return slices.Contains(gone, slave) })
	if len(next.Slaves) == 0 {
		next.Slaves, next.Boot = nil, ""
	}
	return s.save(next)
}

// found says that nothing is lost any more, or given up.
func (s *stateFile) found() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.data
	next.Lost = false
	return s.save(next)
}
