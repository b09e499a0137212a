// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Config is the name server's settings (NamesrvConfig, NettyServerConfig), with Java's key behind each field. A Config
// in use is never written.
type Config struct {
	ListenPort                        int    // listenPort, 9876
	BindAddress                       string // bindAddress, 0.0.0.0
	KVConfigPath                      string // kvConfigPath, <home>/namesrv/kvConfig.json
	ConfigStorePath                   string // configStorePath, <home>/namesrv/namesrv.properties: written by code 318
	OrderMessageEnable                bool   // orderMessageEnable, false: orderTopicConf in routes
	ReturnOrderTopicConfigToBroker    bool   // returnOrderTopicConfigToBroker, true: order topics in answers to registrations
	SupportActingMaster               bool   // supportActingMaster, false: a group without master shows its lowest slave as one
	EnableAllTopicList                bool   // enableAllTopicList, true
	DeleteTopicWithBrokerRegistration bool   // deleteTopicWithBrokerRegistration, false: a topic absent from a registration is removed
	ScanNotActiveBrokerInterval       int64  // scanNotActiveBrokerInterval, 5,000 ms
	ServerChannelMaxIdleTimeSeconds   int    // serverChannelMaxIdleTimeSeconds, 120

	// ConfigBlackList names keys that code 318 refuses, besides those that are read at start only.
	ConfigBlackList string // configBlackList, "configBlackList;configStorePath;kvConfigPath"
}

// DefaultConfig returns the original's defaults.
func DefaultConfig() Config {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	return Config{
		ListenPort:                      9876,
		BindAddress:                     "0.0.0.0",
		KVConfigPath:                    filepath.Join(home, "namesrv", "kvConfig.json"),
		ConfigStorePath:                 filepath.Join(home, "namesrv", "namesrv.properties"),
		ReturnOrderTopicConfigToBroker:  true,
		EnableAllTopicList:              true,
		ScanNotActiveBrokerInterval:     5000,
		ServerChannelMaxIdleTimeSeconds: 120,
		ConfigBlackList:                 "configBlackList;configStorePath;kvConfigPath",
	}
}

// Validate reports all clashes at once.
func (c *Config) Validate() error {
	var wrong []string
	if c.ListenPort < 0 || c.ListenPort > 65535 {
		wrong = append(wrong, fmt.Sprintf("listenPort = %d: want 0 to 65535", c.ListenPort))
	}
	if c.ScanNotActiveBrokerInterval < 100 {
		wrong = append(wrong, fmt.Sprintf("scanNotActiveBrokerInterval = %d: want 100 or more", c.ScanNotActiveBrokerInterval))
	}
	if c.ServerChannelMaxIdleTimeSeconds < 1 {
		wrong = append(wrong, fmt.Sprintf("serverChannelMaxIdleTimeSeconds = %d: want 1 or more", c.ServerChannelMaxIdleTimeSeconds))
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// setting ties a key to its field.
type setting struct {
	key    string
	start  bool // read once, at start
	target func(*Config) any
}

var settings = []setting{
	{"bindAddress", true, func(c *Config) any { return &c.BindAddress }},
	{"configBlackList", true, func(c *Config) any { return &c.ConfigBlackList }},
	{"configStorePath", true, func(c *Config) any { return &c.ConfigStorePath }},
	{"deleteTopicWithBrokerRegistration", false, func(c *Config) any { return &c.DeleteTopicWithBrokerRegistration }},
	{"enableAllTopicList", false, func(c *Config) any { return &c.EnableAllTopicList }},
	{"kvConfigPath", true, func(c *Config) any { return &c.KVConfigPath }},
	{"listenPort", true, func(c *Config) any { return &c.ListenPort }},
	{"orderMessageEnable", false, func(c *Config) any { return &c.OrderMessageEnable }},
	{"returnOrderTopicConfigToBroker", false, func(c *Config) any { return &c.ReturnOrderTopicConfigToBroker }},
	{"scanNotActiveBrokerInterval", false, func(c *Config) any { return &c.ScanNotActiveBrokerInterval }},
	{"serverChannelMaxIdleTimeSeconds", true, func(c *Config) any { return &c.ServerChannelMaxIdleTimeSeconds }},
	{"supportActingMaster", false, func(c *Config) any { return &c.SupportActingMaster }},
}

// Keys are the names of all settings, sorted.
func Keys() []string {
	keys := make([]string, len(settings))
	for i, s := range settings {
		keys[i] = s.key
	}
	return keys
}

// Set gives the field of a key a value from text. known is false for a key that the name server does not have.
func (c *Config) Set(key, value string) (known bool, err error) {
	for _, s := range settings {
		if s.key == key {
			if want := parseInto(s.target(c), value); want != "" {
				return true, fmt.Errorf("%s = %q: want %s", key, value, want)
			}
			return true, nil
		}
	}
	return false, nil
}

// parseInto says what it wants instead of value, "" if it took it.
func parseInto(target any, value string) (want string) {
	var err error
	switch t := target.(type) {
	case *string:
		*t = value
	case *bool:
		switch strings.ToLower(value) {
		case "true":
			*t = true
		case "false":
			*t = false
		default:
			return "true or false"
		}
	case *int:
		*t, err = strconv.Atoi(value)
	case *int64:
		*t, err = strconv.ParseInt(value, 10, 64)
	default:
		panic(fmt.Sprintf("BUG: setting of type %T", target))
	}
	if err != nil {
		return "a whole number"
	}
	return ""
}

// Properties is the configuration as Java properties text, one line a key, sorted; it parses back to itself.
func (c *Config) Properties() string {
	var b strings.Builder
	for _, s := range settings {
		b.WriteString(s.key)
		b.WriteByte('=')
		switch t := s.target(c).(type) {
		case *string:
			b.WriteString(escapeProperty(*t))
		case *bool:
			b.WriteString(strconv.FormatBool(*t))
		case *int:
			b.WriteString(strconv.Itoa(*t))
		case *int64:
			b.WriteString(strconv.FormatInt(*t, 10))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

var propertyEscaper = strings.NewReplacer("\\", "\\\\", "\n", "\\n", "\r", "\\r", "\t", "\\t")

func escapeProperty(s string) string { return propertyEscaper.Replace(s) }

func (c *Config) scanInterval() time.Duration {
	return time.Duration(c.ScanNotActiveBrokerInterval) * time.Millisecond
}

// mayUpdate says whether code 318 may change a key, and why not.
func (c *Config) mayUpdate(key string) error {
	for _, black := range strings.Split(c.ConfigBlackList, ";") {
		if strings.TrimSpace(black) == key {
			return fmt.Errorf("can not update config in black list: %s", key)
		}
	}
	for _, s := range settings {
		if s.key == key && s.start {
			return fmt.Errorf("%s is read at start only", key)
		}
	}
	return nil
}
