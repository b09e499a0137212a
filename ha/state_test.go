// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"slices"
	"testing"

	"loopmq/storage/vfs/faultfs"
)

// reopened is the state as the next start finds it.
func reopened(t *testing.T, s *stateFile, clean, others bool, boot string) *stateFile {
	t.Helper()
	next, err := openState(s.fs, s.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.began(clean, others, boot); err != nil {
		t.Fatal(err)
	}
	return next
}

// A log to which another broker has written counts as acknowledged, from its first byte to its end.
func TestStateAfterAnotherBroker(t *testing.T) {
	s, err := openState(faultfs.New(), "/ha.json")
	if err != nil {
		t.Fatal(err)
	}
	node := s.node()
	if err := s.follow(regimeAsync, -1, 100); err != nil {
		t.Fatal(err)
	}
	if err := s.setCopying(true); err != nil {
		t.Fatal(err)
	}
	s = reopened(t, s, true, false, "1")
	if got := s.floor(500); got != 100 || !s.copying() {
		t.Fatalf("alone: floor %d, copying %v", got, s.copying())
	}
	s = reopened(t, s, true, true, "1")
	if got := s.floor(500); got != 500 || s.copying() || s.node() != node {
		t.Fatalf("after another: floor %d, copying %v, node %x", got, s.copying(), s.node())
	}
	s = reopened(t, s, true, false, "1")
	if got, err := s.lead(true, 700); err != nil || got != 0 {
		t.Fatalf("a SYNC_MASTER from %d on, %v", got, err)
	}
	if err := s.follow(regimeAsync, -1, 700); err != nil {
		t.Fatal(err)
	}
	if got := s.floor(900); got != 700 {
		t.Fatalf("as a slave again: floor %d", got)
	}
}

// What may be lost is noted by whatever start comes first after the boot has changed, and nothing but a start in order, or
// a slave that is dropped, takes slaves out.
func TestStateNotesSlaves(t *testing.T) {
	s, err := openState(faultfs.New(), "/ha.json")
	if err != nil {
		t.Fatal(err)
	}
	wantLost := func(want ...string) {
		t.Helper()
		if got := s.lost(); !slices.Equal(got, want) {
			t.Fatalf("lost to %v, want %v", got, want)
		}
	}
	note := func(slaves ...string) {
		t.Helper()
		for _, slave := range slaves {
			if err := s.note(slave, "1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	note("a", "b", "a")
	s = reopened(t, s, false, false, "1")
	wantLost()
	if err := s.drop([]string{"b"}); err != nil {
		t.Fatal(err)
	}
	s = reopened(t, s, false, false, "2")
	wantLost("a")
	s = reopened(t, s, true, false, "3")
	wantLost("a")
	if err := s.found(); err != nil {
		t.Fatal(err)
	}
	wantLost()
	s = reopened(t, s, true, false, "3")
	note("c")
	s = reopened(t, s, false, false, "") // the kernel does not tell
	wantLost("c")
	if err := s.follow(regimeSync, 0, 10); err != nil {
		t.Fatal(err)
	}
	s = reopened(t, s, false, false, "4")
	wantLost()
}
