// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"loopmq/storage"
)

// ConfigNotice is something that the reader of a configuration should say, once.
type ConfigNotice struct {
	Line int
	Key  string
	Text string
}

// ConfigSource says where a properties text came from, for errors.
type ConfigSource struct {
	Name   string // of the file, as the user gave it
	Strict bool   // an unknown key is an error
}

// LoadConfig reads settings over base, completes them (EnsureDefaults) and checks them (Validate). All that is wrong is
// reported at once, each with file, line, key and what is allowed. On error the Config is not to be used.
func LoadConfig(text []byte, source ConfigSource, base Config) (Config, []ConfigNotice, error) {
	properties, err := ParseProperties(text)
	if err != nil {
		return base, nil, fmt.Errorf("%s: %w", source.Name, err)
	}
	l := configLoader{source: source, config: base, lines: make(map[string]int)}
	for _, p := range properties {
		l.apply(p)
	}
	l.masterNotice()
	l.config.EnsureDefaults()
	for _, err := range splitErrors(l.config.Validate()) {
		l.reject(err)
	}
	return l.config, l.notices, errors.Join(l.errs...)
}

type configLoader struct {
	source  ConfigSource
	config  Config
	lines   map[string]int // where each key was last set
	notices []ConfigNotice
	errs    []error
}

func (l *configLoader) apply(p Property) {
	key, inert, known := lookUpKey(p.Key)
	name := p.Key
	if key != nil {
		name = key.name
	}
	if line, twice := l.lines[name]; twice {
		l.notice(p, fmt.Sprintf("set before in line %d: the last one counts", line))
	}
	l.lines[name] = p.Line
	switch {
	case key != nil:
		if err := key.set(&l.config, p.Value); err != nil {
			l.reject(err)
		}
	case known && inert.limited && !strings.EqualFold(strings.TrimSpace(p.Value), inert.only):
		l.reject(&storage.ConfigError{Key: p.Key, Value: strconv.Quote(p.Value), Want: inert.want()})
	case known:
		l.notice(p, "has no effect here")
	case l.source.Strict:
		l.reject(&storage.ConfigError{Key: p.Key, Value: strconv.Quote(p.Value), Want: "a known key" + suggestion(p.Key)})
	default:
		l.notice(p, "unknown key, ignored"+suggestion(p.Key))
	}
}

// lookUpKey tells keys that act from keys that are known only.
func lookUpKey(name string) (key *configKey, inert inertKey, known bool) {
	if key = keysByName[name]; key != nil {
		return key, inertKey{}, true
	}
	inert, known = inertKeys[name]
	return nil, inert, known
}

func (k inertKey) want() string {
	if k.only == "" {
		return "nothing (" + k.why + ")"
	}
	return k.only + " (" + k.why + ")"
}

func suggestion(name string) string {
	if near := nearestKey(name); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// masterNotice says what EnsureDefaults will change: a master's brokerId is 0 whatever was asked.
func (l *configLoader) masterNotice() {
	if l.config.Store.Role != storage.Slave && l.config.BrokerID != 0 {
		l.notices = append(l.notices, ConfigNotice{Line: l.lines["brokerId"], Key: "brokerId", Text: "a master's brokerId is 0"})
	}
}

func (l *configLoader) notice(p Property, text string) {
	l.notices = append(l.notices, ConfigNotice{Line: p.Line, Key: p.Key, Text: text})
}

func (l *configLoader) reject(err error) {
	var wrong *storage.ConfigError
	if errors.As(err, &wrong) {
		if line := l.lines[wrong.Key]; line > 0 {
			l.errs = append(l.errs, fmt.Errorf("%s:%d: %w", l.source.Name, line, err))
			return
		}
	}
	l.errs = append(l.errs, err)
}

// splitErrors undoes errors.Join, at every depth.
func splitErrors(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, splitErrors(err)...)
	}
	return all
}

// Properties is the configuration in force as a properties text, by key; LoadConfig reads it back to the same Config.
// It is the body of GET_BROKER_CONFIG and what broker -p prints.
func (c *Config) Properties() string {
	var out []byte
	for i := range configKeys {
		out = appendProperty(out, configKeys[i].name, configKeys[i].get(c))
		out = append(out, '\n')
	}
	return string(out)
}

// ConfigRefusedError is a change that UPDATE_BROKER_CONFIG does not make. Forbidden is answered NO_PERMISSION.
type ConfigRefusedError struct {
	Key       string
	Reason    string
	Forbidden bool
}

func (e *ConfigRefusedError) Error() string { return e.Key + ": " + e.Reason }

// forbiddenKeys are never changed from outside, whatever configBlackList says.
var forbiddenKeys = []string{"brokerConfigPath", "configBlackList", "rocketmqHome"}

// UpdateConfigProperties changes settings at run time as UPDATE_BROKER_CONFIG asks, all of them or none: what cannot
// take effect now is refused with the reason. The changes are in the configuration file before they act.
// Only the admin lane's one worker calls it.
func (b *BrokerController) UpdateConfigProperties(text string) error {
	before := b.Config()
	next, changes, err := before.withProperties(text)
	if err != nil {
		return err
	}
	if err := b.persistConfig(next.ConfigFile, changes); err != nil {
		return err
	}
	if b.store != nil {
		if err := b.store.UpdateConfig(func(c *storage.Config) { *c = next.Store }); err != nil {
			return err
		}
	}
	b.useConfig(next)
	if b.outer != nil {
		b.tellNameServers(before, next)
	}
	return nil
}

func (b *BrokerController) tellNameServers(before, next *Config) {
	if next.NamesrvAddr != before.NamesrvAddr {
		b.outer.ConfigChanged()
	}
	if next.BrokerPermission != before.BrokerPermission {
		b.outer.TopicsChanged()
	}
}

// withProperties is a checked copy with the changes a properties text asks for.
func (c *Config) withProperties(text string) (*Config, []Property, error) {
	properties, err := ParseProperties([]byte(text))
	if err != nil {
		return nil, nil, err
	}
	next := *c
	var changes []Property
	var errs []error
	for _, p := range properties {
		if err := next.change(p); err != nil {
			errs = append(errs, err)
			continue
		}
		changes = slices.DeleteFunc(changes, func(earlier Property) bool { return sameKey(earlier.Key, p.Key) })
		changes = append(changes, p)
	}
	if len(errs) == 0 {
		if err := next.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	return &next, changes, nil
}

func (c *Config) change(p Property) error {
	if c.forbids(p.Key) {
		return &ConfigRefusedError{Key: p.Key, Reason: "this key may not be changed from outside", Forbidden: true}
	}
	key, _, known := lookUpKey(p.Key)
	if key == nil {
		reason := "unknown key" + suggestion(p.Key)
		if known {
			reason = "has no effect on this broker"
		}
		return &ConfigRefusedError{Key: p.Key, Reason: reason}
	}
	was := key.get(c)
	if err := key.set(c, p.Value); err != nil {
		return err
	}
	if key.start && key.get(c) != was {
		return &ConfigRefusedError{Key: p.Key, Reason: "is read at start only: change the configuration file and restart the broker"}
	}
	return nil
}

func (c *Config) forbids(name string) bool {
	for black := range strings.SplitSeq(c.ConfigBlackList, ";") {
		if black = strings.TrimSpace(black); black != "" && sameKey(black, name) {
			return true
		}
	}
	return slices.Contains(forbiddenKeys, name)
}

// sameKey says whether two names are spellings of one key.
func sameKey(a, b string) bool {
	if a == b {
		return true
	}
	key := keysByName[a]
	return key != nil && key == keysByName[b]
}

func (b *BrokerController) persistConfig(path string, changes []Property) error {
	if path == "" || len(changes) == 0 {
		return nil
	}
	text, err := b.fs.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration not changed: %w", err)
	}
	text, err = editProperties(text, changes, sameKey)
	if err != nil {
		return fmt.Errorf("configuration not changed: %s: %w", path, err)
	}
	if err := b.fs.WriteFile(path, text); err != nil {
		return fmt.Errorf("configuration not changed: %w", err)
	}
	return nil
}
