// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "loopmq"

// allowedImports is the import graph: which of our packages, and which of others', a package may import itself. The
// store and the event loops stay free of each other, so that each can be read, tested and replaced alone.
var allowedImports = map[string]struct{ ours, others []string }{
	"storage/vfs":         {nil, []string{"github.com/edsrzf/mmap-go", "golang.org/x/sys"}},
	"storage/vfs/faultfs": {[]string{"storage/vfs"}, nil},
	"storage/message":     {nil, nil},
	"storage/latency":     {nil, nil},
	"storage":             {[]string{"storage/latency", "storage/vfs", "storage/message"}, []string{"golang.org/x/sys"}},
	"reactor/remoting":    {nil, nil},
	"reactor":             {[]string{"reactor/remoting"}, []string{"github.com/panjf2000/gnet", "golang.org/x/sys"}},
	"ha":                  {[]string{"storage", "storage/latency", "storage/message", "storage/vfs", "reactor"}, []string{"golang.org/x/sys"}},
	"engine/namesrv":      {[]string{"reactor", "reactor/remoting"}, nil},
	"engine": {
		[]string{"ha", "storage", "storage/latency", "storage/message", "storage/vfs", "reactor", "reactor/remoting"},
		[]string{"github.com/prometheus", "golang.org/x/sys"},
	},
	"engine/interop": {[]string{"engine", "engine/namesrv"}, nil},
	"bench/result":   {nil, []string{"github.com/HdrHistogram/hdrhistogram-go"}},
	"bench/wire":     {[]string{"reactor/remoting"}, nil},
	"bench/load":     {[]string{"bench/result", "bench/wire", "reactor/remoting"}, []string{"golang.org/x/sys"}},
	"bench/proc":     {[]string{"bench/result", "bench/wire", "reactor/remoting"}, []string{"golang.org/x/sys"}},
	"bench/null":     {nil, []string{"github.com/panjf2000/gnet"}},
	"bench/peer":     {[]string{"bench/result", "bench/proc"}, nil},
	"bench/suite":    {[]string{"bench/result", "bench/load", "bench/peer", "bench/proc", "bench/wire"}, []string{"golang.org/x/sys"}},
	"bench/demoha":   {[]string{"bench/proc", "reactor/remoting"}, nil},
	"cmd/loopmq": {
		[]string{"engine", "engine/namesrv", "storage", "storage/vfs", "bench/null", "bench/result", "bench/load", "bench/proc", "bench/peer", "bench/suite"},
		[]string{"github.com/spf13", "golang.org/x/sys"},
	},
}

type listedPackage struct {
	ImportPath string
	Standard   bool
	Imports    []string
}

// listPackages is go list with JSON output: the packages and, with deps, all they need.
func listPackages(t *testing.T, args ...string) []listedPackage {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,Imports"}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v: %s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var packages []listedPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := decoder.Decode(&p); err == io.EOF {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func ours(path string) (string, bool) {
	return strings.CutPrefix(path, module+"/")
}

func TestImportsFollowTheLayout(t *testing.T) {
	standard := make(map[string]bool)
	var checked []listedPackage
	for _, p := range listPackages(t, "-deps", module+"/...") {
		if p.Standard {
			standard[p.ImportPath] = true
		}
		if _, ok := ours(p.ImportPath); ok {
			checked = append(checked, p)
		}
	}
	for _, p := range checked {
		name, _ := ours(p.ImportPath)
		allowed, ok := allowedImports[name]
		if !ok {
			t.Errorf("%s has no row in the layout", name)
			continue
		}
		for _, path := range p.Imports {
			if standard[path] || path == "C" {
				continue
			}
			if own, ok := ours(path); ok {
				if !slices.Contains(allowed.ours, own) {
					t.Errorf("%s imports %s", name, own)
				}
				continue
			}
			if !slices.ContainsFunc(allowed.others, func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

// What may not come in by any way, however deep.
func TestStoreAndEventLoopsStayApart(t *testing.T) {
	f := func(pkg string, forbidden ...string) {
		t.Helper()
		for _, p := range listPackages(t, "-deps", module+"/"+pkg) {
			for _, bad := range forbidden {
				if p.ImportPath == bad || strings.HasPrefix(p.ImportPath, bad+"/") {
					t.Errorf("%s depends on %s", pkg, p.ImportPath)
				}
			}
		}
	}
	f("storage", module+"/reactor", module+"/engine", module+"/ha", "github.com/panjf2000/gnet")
	f("reactor", module+"/storage", module+"/engine", module+"/ha", "github.com/edsrzf/mmap-go")
	f("engine/namesrv", module+"/storage", module+"/ha", "github.com/edsrzf/mmap-go")
}
