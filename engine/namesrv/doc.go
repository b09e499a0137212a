// SPDX-License-Identifier: Apache-2.0

// Package namesrv is the name server: brokers register what they serve, clients ask it for the route of a topic.
//
// Life cycle: New, Start (loads kvConfig.json, listens, begins the scan for silent brokers), Stop. Name servers do not
// talk to each other; a broker registers with all of them and a client asks one. Only the KV table is on disk: after a
// restart routes are known again as the brokers' next registrations come, 30 s at most.
//
// # Ownership
//
// RouteInfoManager has one writer at a time, normally the worker of the register lane: registrations, removals,
// permissions and expiry pass through it in the order they came. Each change publishes a new routeTable, immutable,
// behind an atomic pointer. Event loops answer GET_ROUTEINFO_BY_TOPIC from the table they find there, and the encoded
// answer of a topic is kept with it until the topic, its brokers or its order configuration change. Lists, KV and
// configuration requests, which build large bodies or write files, run on a lane of their own.
//
// # Liveness
//
// A broker is removed when the connection it registered on closes (also by the 120 s idle limit), or when nothing was
// heard of it for its time limit, 120 s unless its registration says otherwise.
//
// # JSON
//
// Routes (105) are written compact and with quoted integer keys to everybody: Java readers of all versions accept
// these, and the Go client cuts brokerAddrs by hand and would read a key behind a blank as 0. Cluster information (106)
// and member groups (901) keep Java's own form, unquoted integer keys, which is what tools were written against.
//
// Not served: static topics' queue mappings (topicQueueMappingByBroker) and notifications of a changed minimum broker
// id (code 905, off by default in 5.x).
package namesrv
