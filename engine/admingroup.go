// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"loopmq/reactor"
	"loopmq/reactor/remoting"
)

// updateAndCreateSubscriptionGroup serves 200. Source: AdminBrokerProcessor#updateAndCreateSubscriptionGroup.
func (b *BrokerController) updateAndCreateSubscriptionGroup(req *reactor.Request) answer {
	if a, refused := b.refusedOnSlave(); refused {
		return a
	}
	r := newJSONReader(req.Body)
	c, err := r.readSubscriptionGroupConfig()
	if err == nil {
		err = r.end()
	}
	if err == nil {
		err = b.groups.Update(c)
	}
	if err != nil {
		return failed(err)
	}
	b.logger.Info("group updated", "group", c.GroupName, "peer", req.Session.RemoteAddr())
	return answer{}
}

// updateAndCreateSubscriptionGroupList serves 225: all of the list or nothing.
func (b *BrokerController) updateAndCreateSubscriptionGroupList(req *reactor.Request) answer {
	if a, refused := b.refusedOnSlave(); refused {
		return a
	}
	list, err := readList(req.Body, "groupConfigList", (*jsonReader).readSubscriptionGroupConfig)
	if err == nil {
		err = b.groups.UpdateAll(list)
	}
	if err != nil {
		return failed(err)
	}
	return answer{}
}

// deleteSubscriptionGroup serves 207. 4.x calls the flag removeOffset, 5.x cleanOffset.
func (b *BrokerController) deleteSubscriptionGroup(req *reactor.Request) answer {
	if a, refused := b.refusedOnSlave(); refused {
		return a
	}
	h := headerOf(req)
	group := h.group("groupName")
	if h.err != nil {
		return failed(h.err)
	}
	if err := b.groups.Delete(group); err != nil {
		return failed(err)
	}
	if req.Ext.Bool("removeOffset") || req.Ext.Bool("cleanOffset") {
		b.offsets.RemoveGroup(group)
		if err := b.offsets.Persist(); err != nil {
			return failed(err)
		}
	}
	b.stats.RemoveGroup(group)
	b.logger.Info("group deleted", "group", group, "peer", req.Session.RemoteAddr())
	return answer{}
}

// getAllSubscriptionGroupConfig serves 201.
func (b *BrokerController) getAllSubscriptionGroupConfig(*reactor.Request) answer {
	var w jsonWriter
	groups, version := b.groups.All()
	writeGroupTable(&w, groups, version, nil)
	return answer{body: w.b}
}

// getSubscriptionGroupConfig serves 352 (5.x).
func (b *BrokerController) getSubscriptionGroupConfig(req *reactor.Request) answer {
	h := headerOf(req)
	group := h.text("group")
	if h.err != nil {
		return failed(h.err)
	}
	c := b.groups.FindOrCreate(group)
	if c == nil {
		return refused(remoting.SubscriptionGroupNotExist, "No group in this broker. group: "+shown([]byte(group)))
	}
	var w jsonWriter
	c.writeTo(&w)
	return answer{body: w.b}
}
