// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"loopmq/bench/result"
	"loopmq/bench/wire"
)

const ms = time.Millisecond

// What overlaps is one stretch, however the requests in it come in.
func TestStretches(t *testing.T) {
	var s stretches
	for _, one := range [][2]time.Duration{{100, 130}, {101, 130}, {95, 131}, {200, 230}, {230, 260}, {400, 425}} {
		s.saw(one[0]*ms, one[1]*ms)
	}
	want := []stretch{{95 * ms, 131 * ms, 36 * ms, 3}, {200 * ms, 260 * ms, 30 * ms, 2}, {400 * ms, 425 * ms, 25 * ms, 1}}
	if !slices.Equal(s.all, want) {
		t.Errorf("%v; want %v", s.all, want)
	}
	f := func(from, to, longest time.Duration) {
		t.Helper()
		if got := s.during(from*ms, to*ms); got != longest*ms {
			t.Errorf("from %d to %d: %v; want %d ms", from, to, got, longest)
		}
	}
	f(0, 94, 0)
	f(90, 95, 36)
	f(131, 200, 36)
	f(261, 399, 0)
	f(0, 1000, 36)
}

// One that reaches back over several makes one of them.
func TestStretchOverSeveral(t *testing.T) {
	var s stretches
	for _, one := range [][2]time.Duration{{0, 30}, {100, 130}, {200, 230}, {120, 240}, {10, 250}} {
		s.saw(one[0]*ms, one[1]*ms)
	}
	if want := []stretch{{0, 250 * ms, 240 * ms, 5}}; !slices.Equal(s.all, want) {
		t.Errorf("%v; want %v", s.all, want)
	}
}

func TestStretchesAreBounded(t *testing.T) {
	var s stretches
	for i := range time.Duration(stallsMax + 100) {
		s.saw(100*i*ms, (100*i+30)*ms)
	}
	if n := len(s.all); n != stallsMax || s.all[n-1].count != 101 {
		t.Errorf("%d stretches, the last of %d", n, s.all[n-1].count)
	}
}

// A stall is the host's if anything else stood still at the same time, and nothing is told of the warm-up.
func TestAttribute(t *testing.T) {
	var late, null, heart stretches
	late.saw(100*ms, 130*ms)   // in the warm-up
	late.saw(1000*ms, 1040*ms) // the server's
	late.saw(2000*ms, 2050*ms) // with the null server
	late.saw(3000*ms, 3030*ms) // with the heartbeat, that began before
	null.saw(2030*ms, 2045*ms)
	null.saw(2200*ms, 2215*ms)
	heart.saw(2990*ms, 3001*ms)
	slow := []slowSend{{990 * ms, 1002 * ms, "lock"}, {1005 * ms, 1035 * ms, "append"}, {2000 * ms, 2040 * ms, "append"}}
	got := attribute(&late, &null, &heart, slow, 500*ms)
	want := []result.Stall{
		{At: 0.5, Millis: 40, Messages: 1, Cause: result.CauseServer, Seen: "broker's stage lock 12 ms, broker's stage append 30 ms"},
		{At: 1.5, Millis: 50, Messages: 1, Cause: result.CauseHost, Seen: "null server 15 ms"},
		{At: 2.5, Millis: 30, Messages: 1, Cause: result.CauseHost, Seen: "heartbeat 11 ms"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}
}

// A broker's line about a slow send is found again, at its time.
func TestSlowSends(t *testing.T) {
	began := wire.Clock()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	logger.Warn("commit log is behind", "stage", "none", "took", time.Second)
	logger.Warn("slow send, most of it in the stage flush", "stage", "flush", "took", 12345*time.Microsecond, "queue", time.Millisecond)
	logger.Info("slow send, most of it in the stage flush", "stage", "flush", "took", time.Second, "queue", time.Millisecond)
	slow := slowSends(log.Bytes())
	if len(slow) != 1 || slow[0].stage != "flush" || slow[0].to-slow[0].from != 12345*time.Microsecond {
		t.Fatalf("%+v in\n%s", slow, log.Bytes())
	}
	if at := slow[0].to; at < began-ms || at > wire.Clock() { // lines have milliseconds
		t.Errorf("at %v; want %v", at, began)
	}
}

// The pump copies what it is asked to, and leaves nothing.
func TestPump(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(from, bytes.Repeat([]byte("x"), 3*pumpPiece/2), 0o644); err != nil {
		t.Fatal(err)
	}
	if took, synced, err := pump(t.Context(), from, to, 3*pumpPiece/2); err != nil || took <= 0 || synced < took {
		t.Errorf("took %v, %v to the disk, %v", took, synced, err)
	}
	if _, _, err := pump(t.Context(), from, to, 2*pumpPiece); err == nil {
		t.Error("a file that is too short was copied")
	}
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Errorf("the copy is left: %v", err)
	}
}

// The file that fills the page cache is of its size, and has no name.
func TestPageCacheHasNoName(t *testing.T) {
	dir := t.TempDir()
	var p pageCache
	if err := p.create(dir, 3<<20); err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.fill(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("in the directory: %v, %v", left, err)
	}
	if info, err := p.file.Stat(); err != nil || info.Size() != 3<<20 {
		t.Errorf("%v, %v", info, err)
	}
}

// The slave that does not read comes back when it is sent away, and says each time that it has nothing.
func TestDeafSlave(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		for range 2 {
			c, err := l.Accept()
			if err != nil {
				served <- err
				return
			}
			b := make([]byte, 8)
			if _, err := c.Read(b); err != nil || !bytes.Equal(b, make([]byte, 8)) {
				t.Errorf("it says %v, %v", b, err)
			}
			_ = c.Close()
		}
		served <- l.Close()
		stop()
	}()
	connected, err := deafSlave(ctx, l.Addr().String())
	if err := <-served; err != nil {
		t.Error(err)
	}
	if connected < 2 || err != nil {
		t.Errorf("connected %d times, %v; want 2", connected, err)
	}
	if _, err := deafSlave(ctx, "127.0.0.1:1"); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

func TestDecades(t *testing.T) {
	f := func(most int64, want ...int64) {
		t.Helper()
		if got := decades(most); !slices.Equal(got, want) {
			t.Errorf("decades(%d)=%v; want %v", most, got, want)
		}
	}
	f(1<<20, 1<<20)
	f(2<<20, 1<<20, 2<<20)
	f(100<<20, 1<<20, 10<<20, 100<<20)
	f(16<<30, 1<<20, 10<<20, 100<<20, 1<<30, 10<<30, 16<<30)
}
