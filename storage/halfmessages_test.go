// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"path"
	"testing"

	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

func (s *testStore) sendBody(topic, body string) {
	s.t.Helper()
	put, done := storeMessage{topic: topic}.put()
	r := message.Record{BornHost: testHost, StoreHost: testHost, Topic: []byte(topic), Body: []byte(body)}
	put.Record = message.AppendRecord(nil, &r)
	if status := s.AsyncPutMessage(put); status != PutOK || <-done != PutOK {
		s.t.Fatal("not stored")
	}
}

// 4.9 writes one offset into each op message, 5.x several with a comma behind each.
func TestOpenHalfMessagesAreSeenAtStart(t *testing.T) {
	f := func(name string, ops []string, consumerOffsets string, want bool) {
		t.Run(name, func(t *testing.T) {
			fsys := faultfs.New()
			s := openTestStore(t, fsys, nil)
			for range 4 {
				s.sendBody(halfTopic, "half")
			}
			for _, op := range ops {
				s.sendBody(opHalfTopic, op)
			}
			s.settled().close()
			if consumerOffsets != "" {
				if err := fsys.MkdirAll(path.Join(testRoot, "config")); err != nil {
					t.Fatal(err)
				}
				if err := fsys.WriteFile(path.Join(testRoot, "config/consumerOffset.json"), []byte(consumerOffsets)); err != nil {
					t.Fatal(err)
				}
			}
			s = openTestStore(t, fsys, nil)
			if got := s.Stats().HasOpenHalfMessages; got != want {
				t.Errorf("open half messages: %v, want %v", got, want)
			}
		})
	}
	f("none ended", nil, "", true)
	f("4.9, all ended", []string{"0", "2", "1", "3"}, "", false)
	f("4.9, one open", []string{"0", "2", "3"}, "", true)
	f("5.x, all ended", []string{"0,1,", "3,2,"}, "", false)
	f("5.x, one open", []string{"0,1,", "3,"}, "", true)
	f("checked up to the last", []string{"3"}, `{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:3},"x@y":{0:1}}}`, false)
	f("checked, quoted", nil, `{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{ "0" : 4 }}}`, false)
}
