// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"loopmq/bench/proc"
	"loopmq/bench/result"
)

// A comparison starts its servers, is recorded in all forms, and is shown again from its record; nothing is left.
func TestBenchCompareAndReport(t *testing.T) {
	dir := t.TempDir()
	stores, record := filepath.Join(dir, "stores"), filepath.Join(dir, "results", "run.json")
	stdout, stderr, code := run(t, "bench", "compare", "--servers", "loopmq", "--again", "--set", "alone", "--only", "^start$|^1 KiB, batches", "--rounds", "2",
		"--duration", "200ms", "--warmup", "0s", "--dir", stores, "--json", record, "--html", filepath.Join(dir, "run.html"), "--markdown", filepath.Join(dir, "run.md"))
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	for _, want := range []string{"took s", "loopmq again", "CPU s/M", "×"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if n := strings.Count(stderr, " round "); n != 8 {
		t.Errorf("%d runs are told; want 8\n%s", n, stderr)
	}
	results, err := readResults([]string{record})
	if err != nil || len(results) != 8 {
		t.Fatalf("%d results in the record: %v", len(results), err)
	}
	if left, _ := os.ReadDir(stores); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	again, stderr, code := run(t, "bench", "report", record, "--html", filepath.Join(dir, "again.html"))
	if code != 0 || again != stdout {
		t.Errorf("exit code %d, %s\n%s\nwant\n%s", code, stderr, again, stdout)
	}
	for _, name := range []string{"run.html", "again.html", "run.md"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBenchVerbsRefuse(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		if _, stderr, code := run(t, append([]string{"bench"}, args...)...); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %s; want %q", args, code, stderr, want)
		}
	}
	f("want one of alone, openloop, peers, scaling", "compare", "--set", "all")
	f("matches no row", "compare", "--only", "nothing like it")
	f("error parsing regexp", "compare", "--only", "(")
	f("neither loopmq", "compare", "--servers", "kafka")
	f("not a process id", "compare", "--servers", "127.0.0.1:1#x")
	f("no such file", "compare", "--servers", "loopmq:/nowhere/loopmq")
	f("--rounds is -1", "compare", "--rounds", "-1")
	f("--duration is 0s", "compare", "--duration", "0s")
	f("--log-max is 0", "compare", "--log-max", "0")
	f("named twice", "compare", "--servers", "loopmq,loopmq")
	f("--rounds is 0", "recovery", "--rounds", "0")
	f("--log-mib is 0", "recovery", "--log-mib", "0")
	f("--warmup is -1s", "replication", "--warmup", "-1s")
	f("runs already", "recovery", "--server", "127.0.0.1:10911")
	f("runs already", "replication", "--server", "127.0.0.1:10911")
	f("no such file", "report", "nothing.json")
	f("requires at least 1 arg", "report")
}

func TestServerNames(t *testing.T) {
	f := func(name, wantAddr string, wantPID int) {
		t.Helper()
		s, err := new(siteFlags).subject(context.Background(), name)
		if err != nil || s.Addr != wantAddr || s.PID != wantPID || s.Flavour != nil {
			t.Errorf("%q is %+v, %v", name, s, err)
		}
	}
	f("127.0.0.1:10911", "127.0.0.1:10911", 0)
	f("127.0.0.1:10911#42", "127.0.0.1:10911", 42)
	f("broker-a:10911#42", "broker-a:10911", 42)
	s, err := new(siteFlags).subject(context.Background(), "loopmq")
	if ours, ok := s.Flavour.(proc.Loopmq); err != nil || !ok || ours.Binary != os.Args[0] && filepath.Base(ours.Binary) != filepath.Base(os.Args[0]) {
		t.Errorf("loopmq is %+v, %v", s, err)
	}
}

// Two records of the same comparison are two servers side by side, and two runs of the same name two columns.
func TestBenchReportOfTwoFiles(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i, name := range []string{"before", "after"} {
		var results []*result.Result
		for round := 1; round <= 2; round++ {
			results = append(results, &result.Result{Row: "work", Subject: "loopmq", Round: round, Messages: int64(1000 * (i + 1)), Seconds: 1})
		}
		results = append(results, &result.Result{Label: "produce", Messages: 1, Seconds: 1})
		path := filepath.Join(dir, name+".json")
		if err := createFile(path, func(w io.Writer) error { return result.Write(w, results...) }); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	results, err := readResults(paths)
	if err != nil {
		t.Fatal(err)
	}
	c := result.Compare(results)
	if len(c) != 1 || len(c[0].Subjects) != 2 || c[0].Subjects[0].Name != "loopmq" || c[0].Subjects[1].Name != "loopmq, after" {
		t.Errorf("compared: %+v", c[0].Subjects)
	}
	if results[2].Label != "produce" || results[5].Label != "produce, after" {
		t.Errorf("labels %q and %q", results[2].Label, results[5].Label)
	}
}

// A terminal that goes away ends a run in order: servers and stores do not stay.
func TestBenchInterrupt(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("started with nohup")
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		ctx, stop := benchInterrupt(t.Context())
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		stop()
	}
}
