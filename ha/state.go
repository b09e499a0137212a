// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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

	mu   sync.Mutex // guards data, also while it is written
	data stateData
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
	if id, err := hex.DecodeString(s.data.Node); err != nil || len(id) != len(nodeID{}) {
		return nil, fmt.Errorf("%q: node is %q, not %d bytes in hex", path, s.data.Node, len(nodeID{}))
	}
	return s, nil
}

// save is called with mu held, or before the file is shared.
func (s *stateFile) save(d stateData) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := s.fs.WriteFile(s.path, append(b, '\n')); err != nil {
		return fmt.Errorf("save %q: %w", s.path, err)
	}
	s.data = d
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
	return s.saveIfNew(next)
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
	return s.saveIfNew(next)
}

// saveIfNew is called with mu held.
func (s *stateFile) saveIfNew(next stateData) error {
	if next == s.data {
		return nil
	}
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
	return syncFrom, s.save(stateData{Node: s.data.Node, Regime: regimeMaster, Floor: end, SyncFrom: syncFrom})
}
