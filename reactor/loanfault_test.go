// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loopmq/reactor/remoting"
)

const loanFaultChildEnv = "LOOPMQ_LOAN_FAULT_CHILD"

// A lent page that cannot be read when it is written, as of a file that was cut short, ends its connection alone.
func TestFaultInALoanClosesItsConnection(t *testing.T) {
	if os.Getenv(loanFaultChildEnv) == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestFaultInALoanClosesItsConnection$", "-test.count=1")
		child.Env = append(os.Environ(), loanFaultChildEnv+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "lent")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lent, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	released := make(chan struct{})
	s := startServer(t, RemotingServerConfig{NumLoops: 1}, func(s *RemotingServer) {
		s.RegisterProcessor(1, echo, nil, false)
		s.RegisterProcessor(2, ProcessorFunc(func(req *Request) {
			req.ReplyTo().ReplyLoans(&remoting.Command{}, [][]byte{lent}, len(lent), func() { close(released) })
		}), nil, false)
	})
	other := dial(t, s.Addr())
	reader := dial(t, s.Addr())
	// More than a socket takes while nobody reads: what comes behind it is copied, here and not by the kernel.
	for range 6 {
		reader.send(reader.frame(1, strings.Repeat("x", 1<<20)))
	}
	eventually(t, "unsent output", func() bool { return s.Stats().OutboundBytes > 0 })
	reader.send(reader.frame(2, ""))
	select {
	case <-released:
	case <-time.After(soon):
		t.Fatal("the loan is not released")
	}
	reader.closedByServer()
	other.send(other.frame(1, "alive"))
	if resp := other.receive(); string(resp.Body) != "alive" {
		t.Fatalf("body %q", resp.Body)
	}
}
