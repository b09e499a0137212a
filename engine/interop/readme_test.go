// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The README's Java program sends a message and receives it, with the stock client of each version.
func TestReadmeJava(t *testing.T) {
	t.Parallel()
	for _, version := range javaVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := fetchPeer(t, version)
			ns := startOurNames(t)
			startOurBroker(t, clientConf(t, ns.addr))
			dir := t.TempDir()
			source := filepath.Join(dir, "Snippet.java")
			must(t, os.WriteFile(source, []byte(`
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

public class Snippet {
    public static void main(String[] args) throws Exception {
`+snippet(t, "java", ns.addr)+`
    }
}
`), 0o644))
			if out, err := exec.Command("javac", "-nowarn", "-Xlint:none", "-d", dir, "-cp", p.Classpath, source).CombinedOutput(); err != nil {
				t.Fatalf("javac: %v\n%s", err, out)
			}
			with := *p
			with.Classpath = dir + ":" + p.Classpath
			startProcess(t, "snippet", with.java(t, "256m", "Snippet"), "hello")
		})
	}
}

// The README's Go program, with the stock client: it starts, sends and subscribes without an error.
func TestReadmeGo(t *testing.T) {
	t.Parallel()
	ns := startOurNames(t)
	startOurBroker(t, clientConf(t, ns.addr))
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	must(t, os.WriteFile(source, []byte(`package main

import (
	"context"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func main() {
	if err := program(context.Background()); err != nil {
		panic(err)
	}
}

func program(ctx context.Context) error {
`+snippet(t, "go", ns.addr)+`
	fmt.Println("sent", sent.Status == primitive.SendOK)
	return err
}
`), 0o644))
	// The program belongs to the Go client's module without being in it.
	module, err := filepath.Abs("goclient")
	must(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(module, "snippet", "main.go"): source}})
	must(t, err)
	file := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(file, overlay, 0o644))
	cmd := exec.Command("go", "run", "-overlay", file, "./snippet")
	cmd.Dir = module
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "sent true") {
		t.Fatalf("%v\n%s", err, tail(out))
	}
}

// snippet is the first block of a language in the README, for another name server.
func snippet(t *testing.T, language, namesrv string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	must(t, err)
	_, rest, found := strings.Cut(string(text), "```"+language+"\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("the README has no %s program", language)
	}
	return strings.ReplaceAll(block, "127.0.0.1:9876", namesrv)
}
