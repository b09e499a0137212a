// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"loopmq/bench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseSample(t *testing.T) {
	got, err := parseSample("[2.001,1.001,12345,2,810.5,2000.0,9000.0]")
	if want := (result.Sample{At: 2.001, Seconds: 1.001, Messages: 12345, Errors: 2, P50: 810.5, P99: 2000, Max: 9000}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "[1,2]", "END", "[1,2,3,4,5,6,7,8]", `["1"]`} {
		if _, err := parseSample(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestParseWindow(t *testing.T) {
	var r result.Result
	if err := parseWindow(`{"messages":30,"bytes":3000,"seconds":2.5,"errors":{"Timeout: x":2},"latencies":[[1000000,20],[2000000,10]]}`, &r); err != nil {
		t.Fatal(err)
	}
	r.Derive()
	if r.Messages != 30 || r.BodyBytes != 3000 || r.MessageRate != 12 || r.ErrorCount() != 2 || r.Latency.Count() != 30 {
		t.Errorf("%+v", r)
	}
	if p := r.Latency.Percentile(50); p < 990*time.Microsecond || p > 1010*time.Microsecond {
		t.Errorf("median %v; want 1 ms", p)
	}
	for _, bad := range []string{"", "{", `{"latencies":[[1,-1]]}`, `{"latencies":[[-1,1]]}`} {
		if err := parseWindow(bad, new(result.Result)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzParseWindow(f *testing.F) {
	f.Add(`{"messages":30,"bytes":3000,"seconds":2.5,"errors":{"a":2},"latencies":[[1000000,20]]}`)
	f.Fuzz(func(t *testing.T, line string) {
		var r result.Result
		if parseWindow(line, &r) == nil {
			r.Derive()
		}
		_, _ = parseSample(line)
	})
}

func TestLoadArguments(t *testing.T) {
	got := loadArguments(result.Settings{
		NameSrv: "127.0.0.1:9876", Topics: []string{"bench", "other"}, Mode: "pipelined", Window: 256, Body: "128", Timeout: result.Duration(5 * time.Second),
	})
	want := []string{"ns=127.0.0.1:9876", "topic=bench", "mode=async", "body=128", "inflight=256", "timeout=5000"}
	if !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// What is compiled is told apart by its text and its name.
func TestDigest(t *testing.T) {
	f := func(programs fstest.MapFS) string {
		t.Helper()
		_, digest, err := readPrograms(programs)
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	a := f(fstest.MapFS{"A.java": {Data: []byte("one")}})
	if a != f(fstest.MapFS{"A.java": {Data: []byte("one")}, "notes.txt": {Data: []byte("x")}}) {
		t.Error("a file that is not compiled counts")
	}
	if a == f(fstest.MapFS{"A.java": {Data: []byte("two")}}) || a == f(fstest.MapFS{"B.java": {Data: []byte("one")}}) {
		t.Error("other programs have the same digest")
	}
	if _, _, err := readPrograms(fstest.MapFS{}); err == nil {
		t.Error("no programs are some")
	}
	if _, _, err := readPrograms(Programs()); err != nil {
		t.Error(err)
	}
}

func TestFilesAreWellFormed(t *testing.T) {
	for name, text := range map[string][]byte{"pom.xml": pom, "logback.xml": logback} {
		for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
	}
}

func TestBrokerCommand(t *testing.T) {
	b := Broker{&Peer{Version: "4.9.7", Classpath: "/classes:/a.jar", home: "/home", settings: "/logback.xml"}, "4g"}
	path, arguments := b.Broker("/dir", "/dir/broker.conf")
	if path != "java" || b.Build() != (result.Build{Name: "java", Version: "4.9.7"}) {
		t.Errorf("%s, %+v", path, b.Build())
	}
	for _, want := range [][]string{{"-Duser.home=/dir"}, {"-Xmx4g"}, {"-cp", "/classes:/a.jar", "org.apache.rocketmq.broker.BrokerStartup", "-c", "/dir/broker.conf"}} {
		if i := slices.Index(arguments, want[0]); i < 0 || !slices.Equal(arguments[i:i+len(want)], want) {
			t.Errorf("no %q in %q", want, arguments)
		}
	}
}
