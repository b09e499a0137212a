// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"loopmq/storage"
	"loopmq/storage/message"
	"loopmq/storage/vfs"
)

func loadConfig(text string, strict bool) (Config, []ConfigNotice, error) {
	return LoadConfig([]byte(text), ConfigSource{Name: "broker.conf", Strict: strict}, DefaultConfig())
}

func TestDefaultConfigIsWhole(t *testing.T) {
	c, notices, err := loadConfig("", true)
	if err != nil || len(notices) > 0 {
		t.Fatalf("the defaults: %v %v", err, notices)
	}
	again := c
	again.EnsureDefaults()
	if !reflect.DeepEqual(c, again) {
		t.Fatalf("EnsureDefaults changed a complete configuration:\n%+v\n%+v", c, again)
	}
}

func TestConfigKeysTable(t *testing.T) {
	if !slices.IsSortedFunc(configKeys, func(a, b configKey) int { return strings.Compare(strings.ToLower(a.name), strings.ToLower(b.name)) }) {
		t.Error("the key table is not sorted by name")
	}
	fields := make(map[any]string)
	var c Config
	for i := range configKeys {
		key := &configKeys[i]
		if key.doc == "" {
			t.Errorf("%s has no description", key.name)
		}
		if other := fields[key.field(&c)]; other != "" {
			t.Errorf("%s and %s share a field", key.name, other)
		}
		fields[key.field(&c)] = key.name
		if _, inert := inertKeys[key.name]; inert {
			t.Errorf("%s acts and is listed as having no effect", key.name)
		}
	}
	// Every field has a key, but for those that follow from another.
	var missing []string
	walkFields(reflect.ValueOf(&c).Elem(), "", func(name string, field reflect.Value) {
		if fields[field.Addr().Interface()] == "" {
			missing = append(missing, name)
		}
	})
	if want := []string{".Store.BrokerID", ".ConfigFile"}; !slices.Equal(missing, want) {
		t.Errorf("fields without a key: %v; want %v", missing, want)
	}
}

func walkFields(v reflect.Value, prefix string, visit func(string, reflect.Value)) {
	for i := range v.NumField() {
		field, name := v.Field(i), prefix+"."+v.Type().Field(i).Name
		if _, leaf := field.Addr().Interface().(*message.DelayLevels); field.Kind() == reflect.Struct && !leaf {
			walkFields(field, name, visit)
			continue
		}
		visit(name, field)
	}
}

// The printed configuration parses back to itself, whatever is set.
func TestConfigPropertiesReadBack(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		want := randomConfig(rng)
		got, notices, err := LoadConfig([]byte(want.Properties()), ConfigSource{Name: "printed", Strict: true}, DefaultConfig())
		if err != nil || len(notices) > 0 {
			t.Fatalf("seed %d: %v %v\n%s", seed, err, notices, want.Properties())
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: printed and read back:\n%+v\nwant\n%+v", seed, got, want)
		}
	}
}

// randomConfig changes keys at random to values that fit.
func randomConfig(rng *rand.Rand) Config {
	for {
		c := DefaultConfig()
		for i := range configKeys {
			if rng.IntN(3) == 0 {
				randomize(rng, configKeys[i].field(&c))
			}
		}
		c.EnsureDefaults()
		var kept error
		for _, err := range splitErrors(c.Validate()) {
			var wrong *storage.ConfigError
			if !errors.As(err, &wrong) {
				panic(err)
			}
			// Not fitting: back to the default, and look again.
			d := DefaultConfig()
			key := keysByName[wrong.Key]
			if kept = key.set(&c, key.get(&d)); kept != nil {
				panic(kept)
			}
		}
		c.EnsureDefaults()
		if c.Validate() == nil {
			return c
		}
	}
}

func randomize(rng *rand.Rand, field any) {
	switch f := field.(type) {
	case *string:
		*f = "x" + randomText(rng)
	case *bool:
		*f = !*f
	case *int:
		*f = rng.IntN(100_000)
	case *int32:
		*f = rng.Int32N(100_000)
	case *int64:
		*f = rng.Int64N(100_000)
	case *storage.Role:
		*f = storage.Role(rng.IntN(3))
	case *storage.FlushDiskType:
		*f = storage.FlushDiskType(rng.IntN(2))
	case *message.DelayLevels:
		levels, err := message.ParseDelayLevels(fmt.Sprintf("%ds  %dm %dh 1d", rng.IntN(60), rng.IntN(60), rng.IntN(24)))
		if err != nil {
			panic(err)
		}
		*f = levels
	default:
		panic(fmt.Sprintf("field of type %T", field))
	}
}

func TestLoadConfigSpellings(t *testing.T) {
	c, notices, err := loadConfig("mapedFileSizeCommitLog=65536\nmapedFileSizeConsumeQueue = 2001\nflushDiskType=SYNC_FLUSH\nbrokerRole: SYNC_MASTER\nbrokerIP1 10.0.0.7\nlistenPort=30911\n", true)
	if err != nil || len(notices) > 0 {
		t.Fatal(err, notices)
	}
	if c.Store.MappedFileSizeCommitLog != 65536 || c.Store.MappedFileSizeConsumeQueue != 2020 {
		t.Errorf("file sizes %d and %d; want 65536 and 2001 rounded up to entries", c.Store.MappedFileSizeCommitLog, c.Store.MappedFileSizeConsumeQueue)
	}
	if c.Store.FlushDiskType != storage.SyncFlush || c.Store.Role != storage.SyncMaster {
		t.Errorf("flushDiskType and brokerRole: %+v", c.Store)
	}
	if c.BrokerIP1 != "10.0.0.7" || c.ListenPort != 30911 || c.HAListenPort != 30912 {
		t.Errorf("addresses: %s %d %d", c.BrokerIP1, c.ListenPort, c.HAListenPort)
	}
	if want := filepath.Join(c.Store.StorePathRootDir, "commitlog"); c.Store.StorePathCommitLog != want {
		t.Errorf("storePathCommitLog %q; want %q", c.Store.StorePathCommitLog, want)
	}
}

func TestLoadConfigNamesEverythingWrongAtOnce(t *testing.T) {
	_, _, err := loadConfig(strings.Join([]string{
		"listenPort = eleven",
		"flushDiskType=SYNC",
		"traceOn=yes",
		"syncFlushTimeout=-5",
		"brokerRole=SLAVE",
		"messageDelayLevel=1s 5x",
		"aclEnable=true",
		"deleteWhen=4;25",
		"haListenPort=10909",
		"namesrvAddr=one:9876;two",
		"storePathCommitLog=/disk1/log,/disk2/log",
	}, "\n"), false)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`broker.conf:1: listenPort = "eleven": want a whole number`,
		`broker.conf:2: flushDiskType = "SYNC": want ASYNC_FLUSH, SYNC_FLUSH`,
		`broker.conf:3: traceOn = "yes": want true or false`,
		`broker.conf:4: syncFlushTimeout = -5: want 1 or more`,
		`brokerId = 0: want 1 or more on a slave`,
		`broker.conf:6: messageDelayLevel = "1s 5x": want times like`,
		`broker.conf:7: aclEnable = "true": want false (access control`,
		`broker.conf:8: deleteWhen = "4;25": want hours`,
		`broker.conf:9: haListenPort = 10909: want a port other`,
		`broker.conf:10: namesrvAddr = "two": want host:port;host:port`,
		`broker.conf:11: storePathCommitLog = "/disk1/log,/disk2/log": want one directory`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

func TestLoadConfigNotices(t *testing.T) {
	text := "sendMessageThreadPoolNums=64\nminInSyncReplicas=2\nlistenPrt=1\nxyzzy=2\naclEnable=false\ntraceOn=true\ntraceOn=false\nbrokerId=3\n"
	c, notices, err := loadConfig(text, false)
	if err != nil {
		t.Fatal(err)
	}
	if c.TraceOn || c.BrokerID != 0 {
		t.Errorf("traceOn=%v brokerId=%d; want the last line, and 0 on a master", c.TraceOn, c.BrokerID)
	}
	want := []ConfigNotice{
		{1, "sendMessageThreadPoolNums", "has no effect here"},
		{2, "minInSyncReplicas", "has no effect here"},
		{3, "listenPrt", "unknown key, ignored; did you mean listenPort?"},
		{4, "xyzzy", "unknown key, ignored"},
		{5, "aclEnable", "has no effect here"},
		{7, "traceOn", "set before in line 6: the last one counts"},
		{8, "brokerId", "a master's brokerId is 0"},
	}
	if !slices.Equal(notices, want) {
		t.Errorf("notices\n%v\nwant\n%v", notices, want)
	}
	_, _, err = loadConfig(text, true)
	if err == nil || !strings.Contains(err.Error(), `broker.conf:3: listenPrt = "1": want a known key; did you mean listenPort?`) || !strings.Contains(err.Error(), "broker.conf:4: xyzzy") {
		t.Errorf("strict: %v", err)
	}
}

func TestNearestKey(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		if got := nearestKey(name); got != want {
			t.Fatalf("nearestKey(%q)=%q; want %q", name, got, want)
		}
	}
	f("brokerip1", "brokerIP1")
	f("flushDiskTpye", "flushDiskType")
	f("storePathRoot", "storePathRootDir")
	f("qqqqqqqq", "")
}

// broker is a controller with a configuration file, enough for changes at run time.
func brokerWithConfig(t *testing.T, text string) (*BrokerController, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker.conf")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, _, err := LoadConfig([]byte(text), ConfigSource{Name: path}, DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	c.ConfigFile = path
	b := &BrokerController{fs: vfs.OS{}}
	b.config.Store(&c)
	return b, path
}

// A value is kept as received in memory, in the answer and in the file, and is there after a restart.
// Thread: apache/rocketmq#530.
func TestUpdateConfigKeepsValuesExactly(t *testing.T) {
	b, path := brokerWithConfig(t, "# mine\nregionId=old\nmyOwn = 7\n")
	for _, value := range []string{"a b  c", "a=b", "a#b", "é中😀", "!x:y ", `back\slash`, "tab\there"} {
		text := string(appendProperty(nil, "regionId", value))
		if err := b.UpdateConfigProperties(text); err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		if got := b.Config().RegionID; got != value {
			t.Fatalf("in force: %q; want %q", got, value)
		}
		if !strings.Contains(b.Config().Properties(), text+"\n") {
			t.Fatalf("%q is not in the answer:\n%s", text, b.Config().Properties())
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(file), "# mine\n") || !strings.HasSuffix(string(file), "\nmyOwn = 7\n") {
			t.Fatalf("the rest of the file changed: %q", file)
		}
		again, _, err := LoadConfig(file, ConfigSource{Name: path}, DefaultConfig())
		if err != nil || again.RegionID != value {
			t.Fatalf("after a restart: %q, %v; want %q", again.RegionID, err, value)
		}
	}
	// As the admin tools send it, not escaped.
	if err := b.UpdateConfigProperties("regionId=x y = z # é\n"); err != nil {
		t.Fatal(err)
	}
	if got := b.Config().RegionID; got != "x y = z # é" {
		t.Fatalf("in force: %q", got)
	}
}

func TestUpdateConfigRefusesWhatCannotAct(t *testing.T) {
	const text = "listenPort=10911\nslaveTimeout=3000\n"
	b, path := brokerWithConfig(t, text)
	before := *b.Config()
	f := func(change, want string, forbidden bool) {
		t.Helper()
		err := b.UpdateConfigProperties(change)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%q: %v; want %q", change, err, want)
		}
		var refused *ConfigRefusedError
		if got := errors.As(err, &refused) && refused.Forbidden; got != forbidden {
			t.Fatalf("%q: forbidden %v; want %v", change, got, forbidden)
		}
		if !reflect.DeepEqual(*b.Config(), before) {
			t.Fatalf("%q changed the configuration", change)
		}
		if file, err := os.ReadFile(path); err != nil || string(file) != text {
			t.Fatalf("%q changed the file: %q, %v", change, file, err)
		}
	}
	f("listenPort=10912\n", "listenPort: is read at start only", false)
	f("slaveTimeout=4000\nflushDiskType=SYNC_FLUSH\n", "flushDiskType: is read at start only", false)
	f("slaveTimeout=soon\n", `slaveTimeout = "soon": want a whole number`, false)
	f("slaveTimeout=0\n", "slaveTimeout = 0: want 1 or more", false)
	f("slaveTimout=5\n", "slaveTimout: unknown key; did you mean slaveTimeout?", false)
	f("sendMessageThreadPoolNums=5\n", "sendMessageThreadPoolNums: has no effect on this broker", false)
	f("rocketmqHome=/x\n", "rocketmqHome", true)
	f("configBlackList=\n", "configBlackList", true)
	f("brokerConfigPath=/x\n", "brokerConfigPath", true)
	f(`slaveTimeout=\u12`, "malformed", false)

	if err := b.UpdateConfigProperties("listenPort=10911\nslaveTimeout=4000\nslaveTimeout=5000\n"); err != nil {
		t.Fatalf("a start-only key with the value it has: %v", err)
	}
	if got := b.Config().Store.SlaveTimeout; got != 5000 {
		t.Fatalf("slaveTimeout=%d; want the last value", got)
	}
}

func TestUpdateConfigNeedsItsFile(t *testing.T) {
	b, path := brokerWithConfig(t, "")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := b.UpdateConfigProperties("slaveTimeout=4000"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v; want that the file is gone", err)
	}
	if b.Config().Store.SlaveTimeout != 3000 {
		t.Fatal("changed in memory only")
	}
}

// A broker that was taken out of service stays so when it is restarted.
func TestBrokerPermissionMayBeNone(t *testing.T) {
	c, _, err := loadConfig("brokerPermission=0", true)
	if err != nil || c.BrokerPermission != 0 {
		t.Fatalf("permission %d, %v", c.BrokerPermission, err)
	}
}
