// SPDX-License-Identifier: Apache-2.0

// Package peer runs the real Apache RocketMQ: it fetches a release through Maven, compiles our programs against it, and
// makes the command lines of its broker and of our load generator on its client. It needs a JDK and Maven; what it
// fetched and compiled stays under the user's cache directory, so later runs need no network.
package peer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Versions are the releases that measurements and tests use: the last of 4.9 that Maven Central has whole, and a 5.x.
var Versions = []string{"4.9.7", "5.3.3"}

var (
	//go:embed pom.xml
	pom []byte
	//go:embed logback.xml
	logback []byte
	//go:embed java
	javaFiles embed.FS
)

// opens are what RocketMQ reaches into on a current JDK.
var opens = []string{
	"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
	"--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
	"--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
}

// Peer is one release, ready to run.
type Peer struct {
	Version   string
	Classpath string // our programs, then the jars
	home      string // rocketmq.home.dir: log settings for 4.x
	settings  string // log settings for 5.x and the client
}

// Programs are the load generator and what else we measure Java with.
func Programs() fs.FS {
	programs, err := fs.Sub(javaFiles, "java")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return programs
}

// Fetch gets a release ready, with the .java files of programs compiled against it: once a machine, and again when
// something of ours has changed.
func Fetch(ctx context.Context, version string, programs fs.FS) (*Peer, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	sources, digest, err := readPrograms(programs)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "loopmq-peer", version+"-"+digest)
	if !jarsPresent(jarsFile(dir)) {
		if err := build(ctx, dir, version, sources); err != nil {
			return nil, fmt.Errorf("RocketMQ %s: %w", version, err)
		}
	}
	jars, err := os.ReadFile(jarsFile(dir))
	if err != nil {
		return nil, err
	}
	return &Peer{
		Version:   version,
		Classpath: classesDir(dir) + ":" + string(bytes.TrimSpace(jars)),
		home:      filepath.Join(dir, "home"), settings: filepath.Join(dir, "logback.xml"),
	}, nil
}

func jarsFile(dir string) string   { return filepath.Join(dir, "jars") }
func classesDir(dir string) string { return filepath.Join(dir, "classes") }

// readPrograms reads the sources; the digest tells them, pom.xml and logback.xml from any others.
func readPrograms(programs fs.FS) (sources map[string][]byte, digest string, err error) {
	names, err := fs.Glob(programs, "*.java")
	if err != nil || len(names) == 0 {
		return nil, "", fmt.Errorf("no programs: %w", err)
	}
	sum := sha256.New()
	add := func(name string, text []byte) {
		fmt.Fprintf(sum, "%s %d\n", name, len(text))
		sum.Write(text)
	}
	add("pom.xml", pom)
	add("logback.xml", logback)
	sources = make(map[string][]byte)
	for _, name := range names {
		text, err := fs.ReadFile(programs, name)
		if err != nil {
			return nil, "", err
		}
		sources[path.Base(name)] = text
		add(name, text)
	}
	return sources, fmt.Sprintf("%x", sum.Sum(nil)[:8]), nil
}

// build fetches and compiles beside dir, and puts the whole in its place: who comes at the same time does it twice, and
// nobody sees half of it.
func build(ctx context.Context, dir, version string, sources map[string][]byte) error {
	for _, tool := range []string{"javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("needs a JDK and Maven: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	files := map[string][]byte{"pom.xml": pom, "logback.xml": logback}
	for _, name := range []string{"broker", "namesrv", "tools"} {
		files["home/conf/logback_"+name+".xml"] = logback
	}
	var programs []string
	for name, text := range sources {
		files["src/"+name] = text
		programs = append(programs, filepath.Join(work, "src", name))
	}
	for name, text := range files {
		file := filepath.Join(work, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644)); err != nil {
			return err
		}
	}
	if err := fetchJars(ctx, work, version); err != nil {
		return err
	}
	jars, err := os.ReadFile(jarsFile(work))
	if err != nil {
		return err
	}
	arguments := append([]string{"-nowarn", "-Xlint:none", "-encoding", "UTF-8", "-d", classesDir(work), "-cp", string(bytes.TrimSpace(jars))}, programs...)
	if out, err := exec.CommandContext(ctx, "javac", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("javac: %w\n%s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil { // its jars are gone
		return err
	}
	if err := os.Rename(work, dir); err != nil && !jarsPresent(jarsFile(dir)) {
		return err
	}
	return nil
}

// fetchJars asks Maven for the class path; a download that fails is tried again.
func fetchJars(ctx context.Context, dir, version string) error {
	const tries = 3
	for i := 1; ; i++ {
		out, err := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join(dir, "pom.xml"), "-Drocketmq.version="+version, "dependency:build-classpath",
			"-Dmdep.outputFile="+jarsFile(dir), "-Dmdep.includeScope=runtime").CombinedOutput()
		if err == nil {
			return nil
		}
		if i == tries || ctx.Err() != nil {
			return fmt.Errorf("mvn: %w\n%s", err, out)
		}
		time.Sleep(time.Duration(i) * 5 * time.Second)
	}
}

func jarsPresent(list string) bool {
	text, err := os.ReadFile(list)
	if err != nil {
		return false
	}
	for jar := range strings.SplitSeq(strings.TrimSpace(string(text)), ":") {
		if _, err := os.Stat(jar); err != nil {
			return false
		}
	}
	return true
}

// Command is the arguments of java for a class of the release or one of our programs. userHome is where it logs; flags
// are the JVM's.
func (p *Peer) Command(userHome string, flags []string, class string, arguments ...string) []string {
	all := append([]string{
		"-Duser.home=" + userHome, "-Drocketmq.home.dir=" + p.home, "-Dlogback.configurationFile=" + p.settings,
		"-Drmq.logback.configurationFile=" + p.settings, "-Drocketmq.client.logLevel=WARN",
	}, opens...)
	all = append(append(all, flags...), "-cp", p.Classpath, class)
	return append(all, arguments...)
}
