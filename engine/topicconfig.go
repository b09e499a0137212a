// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"loopmq/reactor"
)

// Permissions of a topic or broker. Source: PermName.
const (
	PermInherit int32 = 1
	PermWrite   int32 = 2
	PermRead    int32 = 4
)

// queueNumsMax bounds the queues of a topic: every pull, rebalance and admin answer walks them.
const queueNumsMax = 65_536

// topicFilterSingle and topicFilterMulti are the values of TopicFilterType.
const (
	topicFilterSingle = "SINGLE_TAG"
	topicFilterMulti  = "MULTI_TAG"
)

// TopicConfig is immutable once it is in the table: to change it, put a changed copy. Source: TopicConfig.
type TopicConfig struct {
	TopicName       string
	ReadQueueNums   int32
	WriteQueueNums  int32
	Perm            int32
	TopicFilterType string // SINGLE_TAG, MULTI_TAG
	TopicSysFlag    int32
	Order           bool
	Attributes      map[string]string // 5.x; kept, not used
	extra           map[string]string // members of later versions, kept as JSON
}

func newTopicConfig(name string, queueNums, perm int32) *TopicConfig {
	return &TopicConfig{
		TopicName: name, ReadQueueNums: queueNums, WriteQueueNums: queueNums, Perm: perm, TopicFilterType: topicFilterSingle,
	}
}

// validate checks what a tool or a client asked for.
func (c *TopicConfig) validate() error {
	if err := checkTableTopicName(c.TopicName); err != nil {
		return err
	}
	return c.validateQueues()
}

func (c *TopicConfig) validateQueues() error {
	if c.ReadQueueNums < 0 || c.ReadQueueNums > queueNumsMax || c.WriteQueueNums < 0 || c.WriteQueueNums > queueNumsMax {
		return fmt.Errorf("topic %s: %d read and %d write queues, want 0 to %d", c.TopicName, c.ReadQueueNums, c.WriteQueueNums, queueNumsMax)
	}
	return nil
}

func (c *TopicConfig) jsonSize() int {
	const members = 180 // names, numbers and punctuation
	size := members + 2*len(c.TopicName)
	for k, v := range c.Attributes {
		size += len(k) + len(v) + 8
	}
	for k, v := range c.extra {
		size += len(k) + len(v) + 8
	}
	return size
}

func (c *TopicConfig) writeTo(w *jsonWriter) {
	w.beginObject()
	if c.Attributes != nil {
		w.key("attributes")
		w.beginObject()
		for _, k := range slices.Sorted(maps.Keys(c.Attributes)) {
			w.strMember(k, c.Attributes[k])
		}
		w.endObject()
	}
	c.writeMembers(w)
	writeExtra(w, c.extra)
	w.endObject()
}

// writeMembers writes those that name servers know.
func (c *TopicConfig) writeMembers(w *jsonWriter) {
	w.boolMember("order", c.Order)
	w.intMember("perm", int64(c.Perm))
	w.intMember("readQueueNums", int64(c.ReadQueueNums))
	w.strMember("topicFilterType", c.TopicFilterType)
	w.strMember("topicName", c.TopicName)
	w.intMember("topicSysFlag", int64(c.TopicSysFlag))
	w.intMember("writeQueueNums", int64(c.WriteQueueNums))
}

// writeExtra writes members that this version does not know, as they came.
func writeExtra(w *jsonWriter, extra map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(extra)) {
		w.rawMember(k, extra[k])
	}
}

// extraMembersMax bounds the unknown members kept of one entry.
const extraMembersMax = 64

// readExtra keeps an unknown member.
func (r *jsonReader) readExtra(extra *map[string]string, key []byte) error {
	raw, err := r.raw()
	if err != nil {
		return err
	}
	if *extra == nil {
		*extra = make(map[string]string)
	}
	if len(*extra) >= extraMembersMax {
		return r.fail("too many unknown members")
	}
	(*extra)[string(key)] = raw
	return nil
}

func (r *jsonReader) readTopicConfig() (*TopicConfig, error) {
	c := &TopicConfig{ReadQueueNums: 16, WriteQueueNums: 16, Perm: PermRead | PermWrite, TopicFilterType: topicFilterSingle}
	err := r.object(func(key []byte) (err error) {
		switch string(key) {
		case "topicName":
			c.TopicName, err = r.text()
		case "readQueueNums":
			c.ReadQueueNums, err = r.int32()
		case "writeQueueNums":
			c.WriteQueueNums, err = r.int32()
		case "perm":
			c.Perm, err = r.int32()
		case "topicFilterType":
			c.TopicFilterType, err = r.text()
			if c.TopicFilterType != topicFilterMulti {
				c.TopicFilterType = topicFilterSingle
			}
		case "topicSysFlag":
			c.TopicSysFlag, err = r.int32()
		case "order":
			c.Order, err = r.bool()
		case "attributes":
			c.Attributes, err = r.stringMap(extraMembersMax)
		default:
			err = r.readExtra(&c.extra, key)
		}
		return err
	})
	return c, err
}

// stringMap reads an object of strings, at most limit of them.
func (r *jsonReader) stringMap(limit int) (map[string]string, error) {
	m := make(map[string]string)
	err := r.object(func(key []byte) error {
		if len(m) == limit {
			return r.fail(fmt.Sprintf("more than %d members", limit))
		}
		name := string(key)
		v, err := r.text()
		m[name] = v
		return err
	})
	return m, err
}

// TopicConfigManager is the topic table and its file topics.json. Look-ups are for event loops: memory only, no
// allocation. Everything that changes the table writes and syncs a file: admin worker only.
type TopicConfigManager struct {
	b     *BrokerController
	table *configTable[*TopicConfig]

	// Topics that sends wait for, by name, and how many sends; the admin worker's alone.
	wanted  map[string]*wantedTopic
	waiting int

	// registration returns a wait for the name servers to have what was changed by now.
	registration func() (await func())
}

// sendsGatheredMax bounds the sends that wait for one write of the table.
const sendsGatheredMax = 1000

// wantedTopic is a topic that does not exist yet.
type wantedTopic struct {
	config *TopicConfig
	peer   string // who asked first
	made   []func(error)
}

// newTopicConfigManager loads topics.json over the topics that every broker has.
func newTopicConfigManager(b *BrokerController) (*TopicConfigManager, error) {
	m := &TopicConfigManager{
		b: b, table: newConfigTable[*TopicConfig](b.tableFile("topics.json")), wanted: make(map[string]*wantedTopic),
		registration: b.registration,
	}
	m.table.encode = writeTopicTable
	m.table.sizeOf = func(name string, c *TopicConfig) int { return len(name) + c.jsonSize() }
	m.table.submit = b.submitAdmin
	m.table.changed = b.topicsChanged
	m.table.adopt(m.builtIn(), DataVersion{}, nil)
	_, err := m.table.file.load(func(data []byte) error {
		topics, version, extra, err := readTopicTable(data)
		if err != nil {
			return err
		}
		m.table.adopt(topics, version, extra)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// builtIn are the topics that every broker has. Source: TopicConfigManager's constructor.
func (m *TopicConfigManager) builtIn() map[string]*TopicConfig {
	const readWrite = PermRead | PermWrite
	cfg := m.b.Config()
	topics := make(map[string]*TopicConfig)
	add := func(name string, queueNums, perm int32) { topics[name] = newTopicConfig(name, queueNums, perm) }
	withInherit := func(enabled bool) int32 {
		if enabled {
			return readWrite | PermInherit
		}
		return readWrite
	}
	add(topicSelfTest, 1, readWrite)
	if cfg.AutoCreateTopicEnable {
		add(topicAutoCreate, cfg.DefaultTopicQueueNums, readWrite|PermInherit)
	}
	add(topicBenchmark, 1024, readWrite)
	add(cfg.BrokerClusterName, 16, withInherit(cfg.ClusterTopicEnable))
	add(cfg.BrokerName, 1, withInherit(cfg.BrokerTopicEnable))
	add(topicOffsetMoved, 1, readWrite)
	add(topicSchedule, 18, readWrite)
	if cfg.TraceTopicEnable {
		add(cfg.MsgTraceTopicName, 1, readWrite)
	}
	add(replyTopic(cfg.BrokerClusterName), 1, readWrite)
	return topics
}

// Lookup returns nil for an unknown topic.
func (m *TopicConfigManager) Lookup(topic []byte) *TopicConfig {
	c, _ := m.table.entries.getBytes(topic)
	return c
}

// Get is Lookup by string.
func (m *TopicConfigManager) Get(topic string) *TopicConfig {
	c, _ := m.table.entries.get(topic)
	return c
}

// forSend is the topic that a send to an unknown one asks for, nil if the template does not allow it.
// Source: TopicConfigManager#createTopicInSendMessageMethod.
func (m *TopicConfigManager) forSend(topic, defaultTopic string, queueNums, sysFlag int32) (*TopicConfig, error) {
	if err := checkTopicName(topic); err != nil {
		return nil, err
	}
	template := m.Get(defaultTopic)
	if template == nil {
		return nil, nil
	}
	perm := template.Perm
	if defaultTopic == topicAutoCreate && !m.b.Config().AutoCreateTopicEnable {
		perm = PermRead | PermWrite
	}
	if perm&PermInherit == 0 {
		return nil, nil
	}
	c := newTopicConfig(topic, max(0, min(queueNums, template.WriteQueueNums)), perm&^PermInherit)
	c.TopicFilterType = template.TopicFilterType
	c.TopicSysFlag = sysFlag
	return c, nil
}

// createGathered makes a topic, durably, and says so by made. It is for the admin worker, which it does not hold up: the
// topics of all sends that are in the lane by now go into one write of the file. That is when a burst of new topics comes.
// made runs on the worker, or on the one that waits for name servers.
func (m *TopicConfigManager) createGathered(c *TopicConfig, peer string, made func(error)) {
	if err := c.validate(); err != nil {
		made(err)
		return
	}
	w := m.wanted[c.TopicName]
	if w == nil {
		w = &wantedTopic{config: c, peer: peer}
		m.wanted[c.TopicName] = w
	}
	w.made = append(w.made, made)
	m.waiting++
	if m.waiting == 1 && m.table.submit(m.createWanted) {
		return
	}
	if m.waiting == 1 || m.waiting == sendsGatheredMax {
		m.createWanted()
	}
}

// createWanted makes what is wanted that does not exist by now.
func (m *TopicConfigManager) createWanted() {
	wanted := m.wanted
	m.wanted, m.waiting = make(map[string]*wantedTopic), 0
	put := make(map[string]*TopicConfig, len(wanted))
	for name, w := range wanted {
		if m.Get(name) == nil {
			put[name] = w.config
		}
	}
	var err error
	if len(put) > 0 {
		err = m.table.change(put)
	}
	outcomes := make(map[*wantedTopic]error, len(wanted))
	for name, w := range wanted {
		failed := err
		switch {
		case put[name] == nil:
			failed = nil
		case errors.Is(err, errTableFull):
			failed = m.Update(w.config) // there may be room for some
		}
		if failed == nil && put[name] != nil {
			m.b.logger.Info("topic created by a send", "topic", name, "queues", w.config.WriteQueueNums, "peer", w.peer)
		}
		outcomes[w] = failed
	}
	tell := func() {
		for w, failed := range outcomes {
			for _, made := range w.made {
				made(failed)
			}
		}
	}
	if len(put) == 0 {
		tell()
		return
	}
	// Whoever has sent to a topic may look for it next.
	m.whenRegistered(m.b.newTopicLane, tell)
}

// whenRegistered has the lane's one worker call told when the name servers have what was changed by now, in the order of
// the calls. It is for the admin worker, which waits itself only if the lane is full: the name servers do not keep up.
func (m *TopicConfigManager) whenRegistered(lane *reactor.Lane, told func()) {
	await := m.registration()
	awaitAndTell := func() { await(); told() }
	if lane == nil || !lane.Submit(awaitAndTell) {
		awaitAndTell()
	}
}

// CreateInSendBack follows TopicConfigManager#createTopicInSendMessageBackMethod (retry and dead letter topics).
func (m *TopicConfigManager) CreateInSendBack(topic string, queueNums, perm, sysFlag int32) (*TopicConfig, error) {
	if c := m.Get(topic); c != nil {
		return c, nil
	}
	c := forSendBack(topic, queueNums, perm, sysFlag)
	if err := m.Update(c); err != nil {
		return nil, err
	}
	return c, nil
}

func forSendBack(topic string, queueNums, perm, sysFlag int32) *TopicConfig {
	c := newTopicConfig(topic, queueNums, perm)
	c.TopicSysFlag = sysFlag
	return c
}

// createSoon is CreateInSendBack for event loops: in the table at once, in the file and at the name servers soon after.
// It returns nil only at the table's limit or for a name that no table takes.
func (m *TopicConfigManager) createSoon(topic string, queueNums, perm, sysFlag int32) *TopicConfig {
	if c := m.Get(topic); c != nil {
		return c
	}
	c := forSendBack(topic, queueNums, perm, sysFlag)
	if c.validate() != nil {
		return nil
	}
	c, ok := m.table.putSoon(topic, c)
	if !ok {
		m.b.logger.Error("topic not created", "topic", topic, "err", errTableFull)
		return nil
	}
	return c
}

// Update puts c, durably.
func (m *TopicConfigManager) Update(c *TopicConfig) error {
	return m.UpdateAll([]*TopicConfig{c})
}

// UpdateAll puts several as one step.
func (m *TopicConfigManager) UpdateAll(list []*TopicConfig) error {
	put := make(map[string]*TopicConfig, len(list))
	for _, c := range list {
		if err := c.validate(); err != nil {
			return err
		}
		put[c.TopicName] = c
	}
	return m.table.change(put)
}

// Delete forgets the topic, durably. Its queues and offsets are the caller's matter.
func (m *TopicConfigManager) Delete(topic string) error {
	if m.Get(topic) == nil {
		return nil
	}
	return m.table.change(nil, topic)
}

// All is a snapshot.
func (m *TopicConfigManager) All() (map[string]*TopicConfig, DataVersion) { return m.table.all() }

// Persist writes what event loops have put and the file does not hold yet.
func (m *TopicConfigManager) Persist() error { return m.table.persist() }

// writeTopicTable writes the members of TopicConfigSerializeWrapper: the file, code 21's body, and part of a
// registration.
func writeTopicTable(w *jsonWriter, topics map[string]*TopicConfig, version DataVersion, extra map[string]string) {
	w.beginObject()
	w.key("dataVersion")
	version.writeTo(w)
	w.key("topicConfigTable")
	w.beginObject()
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		w.key(name)
		topics[name].writeTo(w)
	}
	w.endObject()
	writeExtra(w, extra)
	w.endObject()
}

// encodeTopicConfigWrapper is TopicConfigSerializeWrapper as it goes to slaves and name servers.
func encodeTopicConfigWrapper(topics map[string]*TopicConfig, version DataVersion) []byte {
	var w jsonWriter
	writeTopicTable(&w, topics, version, nil)
	return w.b
}

// readTopicTable reads what writeTopicTable wrote, or Java.
func readTopicTable(data []byte) (topics map[string]*TopicConfig, version DataVersion, extra map[string]string, err error) {
	topics = make(map[string]*TopicConfig)
	r := newJSONReader(data)
	err = r.object(func(key []byte) (err error) {
		switch string(key) {
		case "dataVersion":
			version, err = r.readDataVersion()
		case "topicConfigTable":
			err = r.object(func(key []byte) error {
				name := string(key)
				c, err := r.readTopicConfig()
				if err != nil {
					return err
				}
				c.TopicName = name
				topics[name] = c
				// The names of broker and cluster are topics too, and may be such as no other topic's: a host's has dots.
				if name == "" || !utf8.ValidString(name) {
					return r.fail("want the name of a topic")
				}
				return c.validateQueues()
			})
		default:
			err = r.readExtra(&extra, key)
		}
		return err
	})
	if err == nil {
		err = r.end()
	}
	return topics, version, extra, err
}
