// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// outputTail is how much of what a process printed an error shows.
const outputTail = 4 << 10

// Process is a program that can be started, ended and started again. It is killed when this process dies.
type Process struct {
	Name string
	path string
	args []string
	dir  string // its working directory; what it prints is added to output.log there

	mu      sync.Mutex
	process *os.Process // nil when it does not run
	started time.Time
	ended   chan struct{} // closed when it has ended
	err     error         // why; valid once ended is closed
}

// NewProcess is a program that does not run yet.
func NewProcess(name, dir, path string, args ...string) *Process {
	return &Process{Name: name, path: path, args: args, dir: dir}
}

// Start starts it.
func (p *Process) Start() error {
	return p.start(exec.Command(p.path, p.args...))
}

// StartPiped starts it with its standard input and output in our hands; errors go to its file.
func (p *Process) StartPiped() (io.WriteCloser, io.Reader, error) {
	cmd := exec.Command(p.path, p.args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return in, out, p.start(cmd)
}

func (p *Process) start(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil {
		return fmt.Errorf("%s already runs", p.Name)
	}
	output, err := os.OpenFile(p.Output(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd.Dir, cmd.Stderr = p.dir, output
	if cmd.Stdout == nil {
		cmd.Stdout = output
	}
	// A process group of its own: an interrupt at the terminal is for us, who end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.ended = make(chan struct{})
	p.started = time.Now()
	if err := p.run(cmd); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.Name, err), output.Close())
	}
	p.process = cmd.Process
	return output.Close()
}

// run starts cmd on a thread that stays until cmd has ended: the kernel takes the death of the thread that started a
// process for the death of its parent.
func (p *Process) run(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		p.mu.Lock()
		p.process, p.err = nil, err
		close(p.ended) // under the lock: the next start makes another one
		p.mu.Unlock()
	}()
	return <-started
}

// PID is its number, 0 when it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return 0
	}
	return p.process.Pid
}

// Started is the moment just before it was started last.
func (p *Process) Started() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

// Ended is closed when it has ended by itself or was made to.
func (p *Process) Ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Failure tells why it is not running, with the end of what it printed.
func (p *Process) Failure() error {
	text, _ := os.ReadFile(p.Output())
	if len(text) > outputTail {
		text = text[len(text)-outputTail:]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s ended: %v\n%s", p.Name, p.err, bytes.TrimSpace(text))
}

// Kill ends it as a crash would, and waits until it is gone.
func (p *Process) Kill() {
	if ended, runs := p.signal(syscall.SIGKILL); runs {
		<-ended
	}
}

// Stop asks it to end and waits until it is gone; what takes longer than limit is killed.
func (p *Process) Stop(limit time.Duration) {
	ended, runs := p.signal(syscall.SIGTERM)
	if !runs {
		return
	}
	select {
	case <-ended:
	case <-time.After(limit):
		p.Kill()
	}
}

// Pause stops it from running until Resume: it keeps its memory and connections, and uses nothing.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// signal sends a signal; runs is false when it has ended. One that ends by itself just now runs until ended is closed.
func (p *Process) signal(s syscall.Signal) (ended <-chan struct{}, runs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return p.ended, false
	}
	_ = p.process.Signal(s)
	return p.ended, true
}

// Output is the file to which what it prints is added.
func (p *Process) Output() string { return filepath.Join(p.dir, "output.log") }
