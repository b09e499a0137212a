// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	profileDialTimeout = 5 * time.Second
	// profileSlack is how long a profile may take beyond its time: a broker under load symbolizes it.
	profileSlack = 30 * time.Second
	// profileSecondsMax bounds the CPU profile of a long run; runs without a fixed length have profileSecondsOpen.
	profileSecondsMax  = 120
	profileSecondsOpen = 10
)

// benchProfiles collects profiles of a broker from its admin port: of its processors, locks and waits while the window
// lasts, of its heap at the window's end.
type benchProfiles struct {
	base, dir string
	cancel    context.CancelFunc
	collected sync.WaitGroup

	mu   sync.Mutex // guards errs
	errs []error
}

func newBenchProfiles(o *benchOutput) *benchProfiles {
	if o.profile == "" {
		return nil
	}
	return &benchProfiles{base: "http://" + o.admin + "/debug/pprof/", dir: o.profile}
}

// check finds out, before the load, whether there is anybody to ask, and makes the directory.
func (p *benchProfiles) check() error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), profileDialTimeout)
	defer cancel()
	if err := p.fetch(ctx, "cmdline", io.Discard); err != nil {
		return fmt.Errorf("--profile: no admin port (see --admin): %w", err)
	}
	return nil
}

func (p *benchProfiles) begin(window time.Duration) {
	seconds := min(int(window.Seconds()), profileSecondsMax)
	if seconds <= 0 {
		seconds = profileSecondsOpen
	}
	var ctx context.Context
	ctx, p.cancel = context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second+profileSlack)
	for file, name := range map[string]string{"cpu.pprof": "profile", "mutex.pprof": "mutex", "block.pprof": "block"} {
		p.collected.Go(func() { p.save(ctx, file, fmt.Sprintf("%s?seconds=%d", name, seconds)) })
	}
}

func (p *benchProfiles) end() {
	ctx, cancel := context.WithTimeout(context.Background(), profileDialTimeout)
	defer cancel()
	p.save(ctx, "heap.pprof", "heap")
}

// finish waits for what is under way, unless ctx has ended, and tells what failed.
func (p *benchProfiles) finish(ctx context.Context) error {
	if p.cancel != nil {
		defer p.cancel()
		defer context.AfterFunc(ctx, p.cancel)()
	}
	p.collected.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}

func (p *benchProfiles) save(ctx context.Context, file, query string) {
	err := createFile(filepath.Join(p.dir, file), func(w io.Writer) error { return p.fetch(ctx, query, w) })
	if err != nil {
		p.mu.Lock()
		p.errs = append(p.errs, fmt.Errorf("profile %s: %w", file, err))
		p.mu.Unlock()
	}
}

func (p *benchProfiles) fetch(ctx context.Context, query string, w io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+query, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", p.base+query, resp.Status)
	}
	_, err = io.Copy(w, resp.Body)
	return err
}
