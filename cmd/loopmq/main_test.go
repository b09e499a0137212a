// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"loopmq/engine"
)

// TestMain makes the test binary the command itself when a test runs it with this variable.
func TestMain(m *testing.M) {
	if os.Getenv("LOOPMQ_TEST_MAIN") != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// patience is for a machine that does other things too.
const patience = 60 * time.Second

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "LOOPMQ_TEST_MAIN=1", "NAMESRV_ADDR=", "HOME="+t.TempDir())
	cmd.Dir = t.TempDir()
	return cmd
}

func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := command(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker.conf")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// What broker -p prints is the configuration in force: -c reads it back, and it prints the same again.
func TestPrintedConfigurationReadsBack(t *testing.T) {
	conf := writeFile(t, "mapedFileSizeCommitLog=65536\nbrokerName=b\nregionId = é = # x\n")
	first, stderr, code := run(t, "broker", "-c", conf, "-n", "127.0.0.1:9876;127.0.0.2:9876", "-p")
	if code != 0 || !strings.Contains(first, "\nmappedFileSizeCommitLog=65536\n") || !strings.Contains(first, "\nnamesrvAddr=127.0.0.1:9876;127.0.0.2:9876\n") {
		t.Fatalf("code %d\n%s%s", code, first, stderr)
	}
	second, stderr, code := run(t, "broker", "-c", writeFile(t, first), "--strict", "-p")
	if code != 0 || second != first {
		t.Fatalf("code %d %s\nprinted\n%s\nthen\n%s", code, stderr, first, second)
	}
	first, _, code = run(t, "namesrv", "-p", "-c", writeFile(t, "listenPort=19876\n"))
	if code != 0 || !strings.Contains(first, "listenPort=19876\n") {
		t.Fatalf("namesrv -p: code %d\n%s", code, first)
	}
}

func TestWrongInputIsNamed(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		stdout, stderr, code := run(t, args...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Fatalf("loopmq %v: code %d, stdout %q, stderr %q; want %q", args, code, stdout, stderr, want)
		}
	}
	conf := writeFile(t, "listenPort=1\nflushDiskTyp=x\nslaveTimeout=soon\n")
	f(conf+`:1: listenPort = 1: want 3 to 65534`, "broker", "-c", conf)
	f(conf+`:3: slaveTimeout = "soon": want a whole number`, "broker", "-c", conf)
	f(conf+`:2: flushDiskTyp = "x": want a known key; did you mean flushDiskType?`, "broker", "-c", conf, "--strict")
	f("gone.conf does not exist", "broker", "-c", "gone.conf")
	f("namesrvAddr", "broker", "-n", "nowhere")
	f("gone.conf does not exist", "namesrv", "-c", "gone.conf")
	f("listenPort", "namesrv", "-c", writeFile(t, "listenPort=x\n"))
	f("unknown key", "namesrv", "--strict", "-c", writeFile(t, "lisenPort=1\n"))
	f("--log-level", "run", "--log-level", "loud")
	f("--log-format", "run", "--log-format", "xml")
	f("0.0.0.0", "run", "-a", "0.0.0.0")
	f("want host:port", "broker", "-n", ";;")
	f("unknown command", "brokr")
	f("unknown flag", "run", "--fast")
}

func TestHelpShowsExamples(t *testing.T) {
	for _, verb := range []string{"run", "broker", "namesrv"} {
		stdout, _, code := run(t, verb, "--help")
		if code != 0 || !strings.Contains(stdout, "Examples:\n  loopmq "+verb) {
			t.Errorf("%s --help: code %d\n%s", verb, code, stdout)
		}
	}
	if stdout, _, code := run(t, "version"); code != 0 || !strings.HasPrefix(stdout, "loopmq ") {
		t.Errorf("version: code %d %q", code, stdout)
	}
}

// brokerPort returns a port that is free with those around it, below the range of outgoing connections.
func brokerPort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 12_000 + rand.IntN(20_000)
		free := true
		for _, p := range []int{port - 2, port - 1, port, port + 1, port + 2} {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				free = false
				continue
			}
			l.Close()
		}
		if free {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

// A node as make run starts it: boot lines on standard output, health on the admin port, an ordered stop on SIGTERM,
// and a second life on the same store.
func TestRunServesAndStops(t *testing.T) {
	port := brokerPort(t)
	conf := writeFile(t, fmt.Sprintf("listenPort=%d\nadminAddr=127.0.0.1:%d\n", port, port+2))
	data := t.TempDir()
	for life := range 2 {
		cmd := command(t, "run", "-d", data, "-c", conf, "--namesrv-port", fmt.Sprint(port-1), "--log-format", "json")
		stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fail := func(format string, args ...any) {
			t.Helper()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("life %d: %s\n%s", life, fmt.Sprintf(format, args...), stderr.String())
		}
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			text, _ := os.ReadFile(stdout.Name())
			if strings.Contains(string(text), fmt.Sprintf(", 127.0.0.1:%d] boot success. serializeType=JSON and name server is 127.0.0.1:%d\n", port, port-1)) {
				break
			}
			if time.Now().After(end) {
				fail("no boot line in %q", text)
			}
		}
		if status, body := get(t, fmt.Sprintf("http://127.0.0.1:%d/readyz", port+2)); status != 200 {
			fail("/readyz: %d %s", status, body)
		}
		// The same wish twice, as timeout(1) sends it, is one.
		for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
			if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
				fail("%v", err)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("life %d: %v\n%s", life, err, stderr.String())
		}
		if !strings.Contains(stderr.String(), `"msg":"the broker has stopped"`) {
			t.Fatalf("life %d: no word of an ordered stop in\n%s", life, stderr.String())
		}
		stdout.Close()
		if _, err := os.Stat(filepath.Join(data, "abort")); err == nil {
			t.Fatal("the abort file is still there after an ordered stop")
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// A second broker on a host goes without the default admin port, but not without one that was asked for.
func TestTakenAdminAddress(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	if l, err := net.Listen("tcp", engine.DefaultAdminAddr); err == nil {
		defer l.Close()
	} // else somebody else has it, as well
	admin, err := listenAdmin(engine.DefaultAdminAddr, nil, quiet)
	if admin != nil || err != nil {
		t.Fatalf("the default address, taken: %v, %v", admin, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if admin, err := listenAdmin(l.Addr().String(), nil, quiet); admin != nil || err == nil {
		t.Fatalf("an address asked for, taken: %v, %v", admin, err)
	}
	if admin, err := listenAdmin("", nil, quiet); admin != nil || err != nil {
		t.Fatalf("switched off: %v, %v", admin, err)
	}
}

// startRun starts a node and waits until it serves.
func startRun(t *testing.T, stderr *os.File) (cmd *exec.Cmd, data, namesrv string) {
	t.Helper()
	port := brokerPort(t)
	conf := writeFile(t, fmt.Sprintf("listenPort=%d\nadminAddr=127.0.0.1:%d\n", port, port+2))
	data = t.TempDir()
	cmd = command(t, "run", "-d", data, "-c", conf, "--namesrv-port", fmt.Sprint(port-1))
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		stuck.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	waitForText(t, stdout.Name(), "The broker[")
	return cmd, data, fmt.Sprintf("127.0.0.1:%d", port-1)
}

func waitForText(t *testing.T, path, want string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(path)
		if strings.Contains(string(text), want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %q in\n%s", want, text)
		}
	}
}

// A terminal that closes is a wish to stop in order, and nobody reading the log any more is no reason to end at all.
func TestHangupStopsInOrder(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored, and so it would be there")
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd, data, _ := startRun(t, write)
	write.Close()
	read.Close()
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, "abort")); err == nil {
		t.Fatal("the abort file is still there")
	}
}

// Nobody finds the broker of a node whose name server has ended: the node ends as well, and says why.
func TestRunEndsWithItsNameServer(t *testing.T) {
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd, _, namesrv := startRun(t, stderr)
	var limit unix.Rlimit
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Skip("limits of another process cannot be set:", err)
	}
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}, nil); err != nil {
		t.Skip("limits of another process cannot be set:", err)
	}
	// It cannot accept this connection, which ends the event loops, and may be noticed here first.
	if conn, err := net.Dial("tcp", namesrv); err == nil {
		defer conn.Close()
	}
	waitForText(t, stderr.Name(), "ended unasked")
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	text, _ := os.ReadFile(stderr.Name())
	_, why, told := strings.Cut(string(text), "\nloopmq: ") // the broker, too, may have missed a descriptor: before or behind that
	if code := cmd.ProcessState.ExitCode(); code != 1 || !told || !strings.Contains(why, "event engine on "+namesrv) {
		t.Fatalf("exit code %d\n%s", code, text)
	}
}

// A signal during the start stops what has begun. Nothing went wrong.
func TestStopDuringTheStart(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2") // else that of the tests would change
	quiet := slog.New(slog.DiscardHandler)
	base := engine.DefaultConfig()
	base.Store.StorePathRootDir, base.AdminAddr = t.TempDir(), ""
	cfg, err := new(configFlags).load(base, quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := serveBroker(ctx, cfg, quiet); err != nil {
		t.Fatal(err)
	}
}
