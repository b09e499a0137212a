// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"
	"testing"
	"time"

	"loopmq/storage"
)

// BenchmarkTransferFrame is what one frame of the log costs the master: finding it, holding it, writing its header. The
// socket's part is left out.
func BenchmarkTransferFrame(b *testing.B) {
	for _, batch := range []int{1 << 10, 32 << 10} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			m := startMaster(b, func(c *Config) { c.HaTransferBatchSize = batch })
			m.grow(2 * storage.PhyOffset(batch))
			conn := new(quietConn)
			handler := &masterHandler{m.ha}
			handler.OnOpen(conn)
			defer handler.OnClose(conn, nil)
			c := conn.context.(*HAConnection)
			conn.in = reportOf(1)
			c.onTraffic(time.Now())
			last := m.store.MaxPhyOffset() - storage.PhyOffset(batch)
			b.SetBytes(int64(batch))
			b.ReportAllocs()
			for b.Loop() {
				c.nextTransferFromWhere = last
				conn.written = 0
				c.onLoopPump()
				if conn.written != frameHeaderSize+batch {
					b.Fatalf("%d bytes were written", conn.written)
				}
			}
		})
	}
}
