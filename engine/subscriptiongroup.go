// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"
)

// SubscriptionGroupConfig is immutable once in the table. Source: SubscriptionGroupConfig.
type SubscriptionGroupConfig struct {
	GroupName                      string
	ConsumeEnable                  bool
	ConsumeFromMinEnable           bool
	ConsumeBroadcastEnable         bool
	RetryQueueNums                 int32
	RetryMaxTimes                  int32
	BrokerID                       int64
	WhichBrokerWhenConsumeSlowly   int64
	NotifyConsumerIdsChangedEnable bool
	extra                          map[string]string // members of 5.x, kept as JSON
}

func newSubscriptionGroupConfig(group string) *SubscriptionGroupConfig {
	return &SubscriptionGroupConfig{
		GroupName:                      group,
		ConsumeEnable:                  true,
		ConsumeFromMinEnable:           true,
		ConsumeBroadcastEnable:         true,
		RetryQueueNums:                 1,
		RetryMaxTimes:                  16,
		WhichBrokerWhenConsumeSlowly:   1,
		NotifyConsumerIdsChangedEnable: true,
	}
}

func (c *SubscriptionGroupConfig) validate() error {
	if err := checkGroupName(c.GroupName); err != nil {
		return err
	}
	return c.validateQueues()
}

func (c *SubscriptionGroupConfig) validateQueues() error {
	if c.RetryQueueNums < 0 || c.RetryQueueNums > queueNumsMax {
		return fmt.Errorf("group %s: %d retry queues, want 0 to %d", c.GroupName, c.RetryQueueNums, queueNumsMax)
	}
	return nil
}

func (c *SubscriptionGroupConfig) jsonSize() int {
	const members = 280 // names, numbers and punctuation
	size := members + 2*len(c.GroupName)
	for k, v := range c.extra {
		size += len(k) + len(v) + 8
	}
	return size
}

func (c *SubscriptionGroupConfig) writeTo(w *jsonWriter) {
	w.beginObject()
	w.intMember("brokerId", c.BrokerID)
	w.boolMember("consumeBroadcastEnable", c.ConsumeBroadcastEnable)
	w.boolMember("consumeEnable", c.ConsumeEnable)
	w.boolMember("consumeFromMinEnable", c.ConsumeFromMinEnable)
	w.strMember("groupName", c.GroupName)
	w.boolMember("notifyConsumerIdsChangedEnable", c.NotifyConsumerIdsChangedEnable)
	w.intMember("retryMaxTimes", int64(c.RetryMaxTimes))
	w.intMember("retryQueueNums", int64(c.RetryQueueNums))
	w.intMember("whichBrokerWhenConsumeSlowly", c.WhichBrokerWhenConsumeSlowly)
	writeExtra(w, c.extra)
	w.endObject()
}

func (r *jsonReader) readSubscriptionGroupConfig() (*SubscriptionGroupConfig, error) {
	c := newSubscriptionGroupConfig("")
	err := r.object(func(key []byte) (err error) {
		switch string(key) {
		case "groupName":
			c.GroupName, err = r.text()
		case "consumeEnable":
			c.ConsumeEnable, err = r.bool()
		case "consumeFromMinEnable":
			c.ConsumeFromMinEnable, err = r.bool()
		case "consumeBroadcastEnable":
			c.ConsumeBroadcastEnable, err = r.bool()
		case "retryQueueNums":
			c.RetryQueueNums, err = r.int32()
		case "retryMaxTimes":
			c.RetryMaxTimes, err = r.int32()
		case "brokerId":
			c.BrokerID, err = r.int64()
		case "whichBrokerWhenConsumeSlowly":
			c.WhichBrokerWhenConsumeSlowly, err = r.int64()
		case "notifyConsumerIdsChangedEnable":
			c.NotifyConsumerIdsChangedEnable, err = r.bool()
		default:
			err = r.readExtra(&c.extra, key)
		}
		return err
	})
	return c, err
}

// Groups that tools use. Source: MixAll, SubscriptionGroupManager#init.
var builtInGroups = []string{
	"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
	"CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
}

// SubscriptionGroupManager is the group table and subscriptionGroup.json. Lookup and FindOrCreate are for loops; the
// rest is not.
type SubscriptionGroupManager struct {
	b     *BrokerController
	table *configTable[*SubscriptionGroupConfig]
}

// newSubscriptionGroupManager loads subscriptionGroup.json over the groups that every broker has.
func newSubscriptionGroupManager(b *BrokerController) (*SubscriptionGroupManager, error) {
	m := &SubscriptionGroupManager{b: b, table: newConfigTable[*SubscriptionGroupConfig](b.tableFile("subscriptionGroup.json"))}
	m.table.encode = writeGroupTable
	m.table.sizeOf = func(name string, c *SubscriptionGroupConfig) int { return len(name) + c.jsonSize() }
	m.table.submit = b.submitAdmin
	builtIn := make(map[string]*SubscriptionGroupConfig)
	for _, group := range builtInGroups {
		builtIn[group] = newSubscriptionGroupConfig(group)
	}
	m.table.adopt(builtIn, DataVersion{}, nil)
	_, err := m.table.file.load(func(data []byte) error {
		groups, version, extra, err := readGroupTable(data)
		if err != nil {
			return err
		}
		m.table.adopt(groups, version, extra)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Lookup returns nil for an unknown group; it allocates nothing.
func (m *SubscriptionGroupManager) Lookup(group []byte) *SubscriptionGroupConfig {
	c, _ := m.table.entries.getBytes(group)
	return c
}

// Get is Lookup by string.
func (m *SubscriptionGroupManager) Get(group string) *SubscriptionGroupConfig {
	c, _ := m.table.entries.get(group)
	return c
}

// FindOrCreate makes an unknown group when autoCreateSubscriptionGroup allows it, nil if not. It is for event loops:
// the file is written by the admin worker. Source: SubscriptionGroupManager#findSubscriptionGroupConfig.
func (m *SubscriptionGroupManager) FindOrCreate(group string) *SubscriptionGroupConfig {
	if c := m.Get(group); c != nil {
		return c
	}
	if !m.b.Config().AutoCreateSubscriptionGroup && !isSystemGroup(group) || checkGroupName(group) != nil {
		return nil
	}
	c, ok := m.table.putSoon(group, newSubscriptionGroupConfig(group))
	if !ok {
		m.b.logger.Error("group not created", "group", group, "err", errTableFull)
		return nil
	}
	return c
}

// Update puts c, durably.
func (m *SubscriptionGroupManager) Update(c *SubscriptionGroupConfig) error {
	return m.UpdateAll([]*SubscriptionGroupConfig{c})
}

// UpdateAll puts several as one step.
func (m *SubscriptionGroupManager) UpdateAll(list []*SubscriptionGroupConfig) error {
	put := make(map[string]*SubscriptionGroupConfig, len(list))
	for _, c := range list {
		if err := c.validate(); err != nil {
			return err
		}
		put[c.GroupName] = c
	}
	return m.table.change(put)
}

// Delete forgets the group, durably.
func (m *SubscriptionGroupManager) Delete(group string) error {
	if m.Get(group) == nil {
		return nil
	}
	return m.table.change(nil, group)
}

// All is a snapshot.
func (m *SubscriptionGroupManager) All() (map[string]*SubscriptionGroupConfig, DataVersion) {
	return m.table.all()
}

// Names are all groups, sorted.
func (m *SubscriptionGroupManager) Names() (names []string) {
	m.table.entries.each(func(name string, _ *SubscriptionGroupConfig) bool {
		names = append(names, name)
		return true
	})
	slices.Sort(names)
	return names
}

// Persist writes what event loops have put and the file does not hold yet.
func (m *SubscriptionGroupManager) Persist() error { return m.table.persist() }

// writeGroupTable writes the file and code 201's body.
func writeGroupTable(w *jsonWriter, groups map[string]*SubscriptionGroupConfig, version DataVersion, extra map[string]string) {
	w.beginObject()
	w.key("dataVersion")
	version.writeTo(w)
	w.key("subscriptionGroupTable")
	w.beginObject()
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		w.key(name)
		groups[name].writeTo(w)
	}
	w.endObject()
	writeExtra(w, extra)
	w.endObject()
}

func readGroupTable(data []byte) (groups map[string]*SubscriptionGroupConfig, version DataVersion, extra map[string]string, err error) {
	groups = make(map[string]*SubscriptionGroupConfig)
	r := newJSONReader(data)
	err = r.object(func(key []byte) (err error) {
		switch string(key) {
		case "dataVersion":
			version, err = r.readDataVersion()
		case "subscriptionGroupTable":
			err = r.object(func(key []byte) error {
				name := string(key)
				c, err := r.readSubscriptionGroupConfig()
				if err != nil {
					return err
				}
				c.GroupName = name
				groups[name] = c
				return nil
			})
		default:
			err = r.readExtra(&extra, key)
		}
		return err
	})
	if err == nil {
		err = r.end()
	}
	return groups, version, extra, err
}
