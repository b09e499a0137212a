// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"loopmq/engine"
	"loopmq/engine/namesrv"
)

// Files of a node made to try things: they are created at once, and a few of them fit any disk. The files stay
// RocketMQ's, only smaller; a store keeps the size it was begun with.
const (
	runCommitLogSize    = 64 << 20
	runConsumeQueueSize = 20_000 * 20
	runHashSlots        = 50_000
	runIndexEntries     = 200_000
)

func newRunCommand(log *logFlags) *cobra.Command {
	var (
		config      configFlags
		data        string
		address     string
		namesrvPort int
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a name server and a broker in one process",
		Long: `Run a name server and a broker in one process, until SIGTERM, SIGINT or SIGHUP.

Both listen on 127.0.0.1 unless -a names another address of this host, which clients are then told. The store is in
./data or where -d says, with smaller files than a broker's: 64 MiB of log a file. A -c file of RocketMQ's keys goes
over all of that.`,
		Example: `  loopmq run
  loopmq run -d /var/lib/loopmq -a 10.0.0.5
  loopmq run -c my.conf`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			logger, err := log.logger()
			if err != nil {
				return err
			}
			if ip, err := netip.ParseAddr(address); err == nil && ip.IsUnspecified() {
				return fmt.Errorf("-a %s: want one address of this host, which clients can be told", address)
			}
			dir, err := filepath.Abs(data)
			if err != nil {
				return err
			}
			base := engine.DefaultConfig()
			base.BindAddress, base.BrokerIP1, base.BrokerIP2 = address, address, address
			base.NamesrvAddr = net.JoinHostPort(address, strconv.Itoa(namesrvPort))
			base.Store.StorePathRootDir = dir
			base.Store.MappedFileSizeCommitLog = runCommitLogSize
			base.Store.MappedFileSizeConsumeQueue = runConsumeQueueSize
			base.Store.MaxHashSlotNum = runHashSlots
			base.Store.MaxIndexNum = runIndexEntries
			cfg, err := config.load(base, logger)
			if err != nil {
				return err
			}
			names := namesrv.DefaultConfig()
			names.BindAddress, names.ListenPort = address, namesrvPort
			names.KVConfigPath = filepath.Join(dir, "namesrv", "kvConfig.json")
			names.ConfigStorePath = filepath.Join(dir, "namesrv", "namesrv.properties")

			logger.Info("a node to try things: on one address, with small files", "address", address, "store", cfg.Store.StorePathRootDir,
				"mappedFileSizeCommitLog", cfg.Store.MappedFileSizeCommitLog)
			ctx, stop := signals(logger)
			defer stop()
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("directory of the store: %w", err)
			}
			server, err := startNamesrv(names, logger)
			if err != nil {
				return err
			}
			defer server.Stop()
			go func() { // nobody finds a broker without it
				<-server.Done()
				stop()
			}()
			return errors.Join(serveBroker(ctx, cfg, logger), server.Err())
		},
	}
	config.register(cmd)
	cmd.Flags().StringVarP(&data, "data", "d", "data", "directory of the store")
	cmd.Flags().StringVarP(&address, "address", "a", "127.0.0.1", "address to listen on and to tell clients")
	cmd.Flags().IntVar(&namesrvPort, "namesrv-port", 9876, "port of the name server")
	return cmd
}
