// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"slices"
	"strings"
	"testing"
)

func TestPropertiesParseBack(t *testing.T) {
	cfg := DefaultConfig()
	cfg.ListenPort, cfg.OrderMessageEnable, cfg.KVConfigPath = 1234, true, `C:\kv`+"\tx"
	var got Config
	for line := range strings.Lines(cfg.Properties()) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		value = strings.NewReplacer(`\\`, `\`, `\t`, "\t").Replace(value)
		if known, err := got.Set(key, value); !known || err != nil {
			t.Fatalf("%s: known %v, %v", line, known, err)
		}
	}
	if got != cfg {
		t.Fatalf("got %+v\nwant %+v", got, cfg)
	}
	if !slices.IsSorted(Keys()) {
		t.Fatal("keys are not sorted")
	}
}

func TestSetAndValidate(t *testing.T) {
	cfg := DefaultConfig()
	if known, _ := cfg.Set("nonsense", "1"); known {
		t.Fatal("nonsense is known")
	}
	for key, value := range map[string]string{"listenPort": "x", "orderMessageEnable": "yes", "scanNotActiveBrokerInterval": "1s"} {
		if _, err := cfg.Set(key, value); err == nil {
			t.Fatalf("%s=%s was taken", key, value)
		}
	}
	cfg.ListenPort, cfg.ScanNotActiveBrokerInterval, cfg.ServerChannelMaxIdleTimeSeconds = 70_000, 0, 0
	err := cfg.Validate()
	for _, key := range []string{"listenPort", "scanNotActiveBrokerInterval", "serverChannelMaxIdleTimeSeconds"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Fatalf("%s is missing in %v", key, err)
		}
	}
}
