package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/metrics"
	"github.com/grange-project/grange/internal/pages"
	"github.com/grange-project/grange/internal/pki"
	"github.com/grange-project/grange/internal/sdnotify"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/server/usage"
	"github.com/grange-project/grange/internal/signin"
	"github.com/grange-project/grange/internal/store"
	"github.com/grange-project/grange/internal/transfer"
	"github.com/grange-project/grange/internal/version"
)

// DefaultServerConfig is where a server's configuration is looked for.
const DefaultServerConfig = "/etc/grange/server.toml"

// serverFlags go before the keys of the configuration.
type serverFlags struct{ config, store, listen, socket string }

// serverCommands are the commands of servers and their database.
type serverCommands struct{ *app.App }

func (a serverCommands) serverCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use: "server", Short: "Run a server of the fleet, and manage its database", Args: cobra.NoArgs,
		Long: `Run a server of the fleet. The server stores all hosts, cells and users' VMs, places VMs on
hosts, and sends each host the VMs that it is to run. It listens on a local socket, where
root has all permissions, and with TLS for users and hosts. Its database is a SQLite file,
or PostgreSQL if there are several servers. The server does not need root.

SIGHUP makes the server read its certificate again. SIGTERM stops it; hosts and VMs continue
to run.`,
		Example: "  grange server\n  grange server --store postgres:///grange --listen :7480",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.read(cmd)
			if err != nil {
				return err
			}
			return a.runServer(cmd.Context(), c)
		},
	}
	shared := cmd.PersistentFlags()
	shared.StringVar(&f.config, "config", DefaultServerConfig,
		"configuration `FILE`; a file given here must exist; if "+DefaultServerConfig+" does not exist, defaults apply")
	shared.StringVar(&f.store, "store", "",
		"database, instead of the configured one: a `FILE`, or postgres://USER@HOST/DATABASE")
	cmd.Flags().StringVar(&f.listen, "listen", "", "`HOST:PORT` for users and hosts, instead of the configured one")
	cmd.Flags().StringVar(&f.socket, "socket", "",
		"`PATH` of the server's local socket, instead of the configured one")
	cmd.AddCommand(a.serverCheck(&f), a.serverStatus(), a.serverBackup(&f), a.serverRestore(&f), a.serverCA())
	return cmd
}

// read reads the configuration, and puts what the command line says in its place.
func (f *serverFlags) read(cmd *cobra.Command) (config.Server, error) {
	if cmd.Flags().Changed("config") {
		if _, err := os.Stat(f.config); err != nil {
			return config.Server{}, &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
				Message: "no configuration", Err: err, Hint: "name a file that exists, or leave --config out"}
		}
	}
	c, err := config.ReadServer(f.config)
	if err != nil {
		return c, err
	}
	for _, o := range []struct {
		to   *string
		text string
	}{{&c.Store, f.store}, {&c.Listen, f.listen}, {&c.Socket, f.socket}} {
		if o.text != "" {
			*o.to = o.text
		}
	}
	return c.Reached()
}

// limitMemory has the server collect its garbage more often where it would take more than half of the machine's memory.
// GOMEMLIMIT in the environment goes before.
func limitMemory() {
	var m unix.Sysinfo_t
	if os.Getenv("GOMEMLIMIT") == "" && unix.Sysinfo(&m) == nil {
		debug.SetMemoryLimit(int64(uint64(m.Totalram) * uint64(m.Unit) / 2))
	}
}

// runServer works until ctx ends.
func (a serverCommands) runServer(ctx context.Context, c config.Server) error {
	limitMemory()
	log := a.ServiceLog("grange-server")
	for _, path := range []string{c.Socket, c.Store, c.KeyFile()} {
		if !filepath.IsAbs(path) {
			continue // a database elsewhere
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
	}
	db, err := openStore(ctx, c.Store, log)
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := newServer(c, db, log)
	if err != nil {
		return err
	}
	if _, err := s.Links.Authorities(ctx); err != nil {
		return err
	}
	api, people, err := newAPI(c, s, log)
	if err != nil {
		return err
	}
	shown, err := listenerCertificate(c, s)
	if err != nil {
		return err
	}
	defer shown.readOnHangUp(log, people.Reread)()
	listeners, err := listen(c, shown, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go metrics.Listener{Address: c.MetricsListen, TokenFile: c.MetricsTokenFile}.Serve(ctx, api.MetricsHandler(), log)
	worked := make(chan error, 1)
	go func() { worked <- s.Run(ctx) }()
	notify(log, sdnotify.Ready)
	defer context.AfterFunc(ctx, func() { notify(log, sdnotify.Stopping) })()
	if err := keepServerAlive(ctx, c, s, log); err != nil {
		return err
	}
	log.Info("server serves", "socket", c.Socket, "listen", c.Listen, "url", c.URL)
	err = api.Serve(ctx, listeners...)
	cancel()
	return errors.Join(err, <-worked)
}

// storeTimeout is how long a server waits at its start for a database that starts at the same time.
const storeTimeout = time.Minute

// openStore waits for a database that does not answer yet; then the error says why, and whoever started the server
// tries again. A file is there, or it is not.
func openStore(ctx context.Context, url string, log *slog.Logger) (*store.Store, error) {
	deadline := time.Now().Add(storeTimeout)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		db, err := store.Open(ctx, url)
		if !strings.Contains(url, "://") || !farm.IsKind(err, farm.Unavailable) || time.Now().After(deadline) {
			return db, err
		}
		log.Warn("waiting for the database", "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func newServer(c config.Server, db *store.Store, log *slog.Logger) (*server.Server, error) {
	o := server.Options{Store: db, Log: log, URL: c.URL, Servers: c.Servers, Version: version.String(),
		Silence: c.SilentAfter, CAKeyFile: c.KeyFile(),
		Broker: func(cell farm.Cell) (batch.System, error) { return brokerOf(c, cell) }, Brokers: brokerNames(c),
		ImageDir: c.Images(), ImageSpace: c.ImageSpace,
		ImagePace: transfer.NewRate(int64(c.SourceRate)).Wait, FileSystems: c.FileSystems, History: c.History(),
		Sessions: accounts.SessionLimits{Idle: c.SessionIdle, Total: c.SessionLimit},
		Usage: usage.Options{VOs: c.Usage.VOs, Keep: usage.DaysOf(c.Usage.KeepDays),
			Mask: usage.DaysOf(c.Usage.MaskDays), SameNames: c.Usage.SameNames,
			HostJobs: c.Usage.HostJobs}}
	var s *server.Server
	var err error
	open := func(sum string) (*os.File, error) { return s.Images.OpenBlob(sum) }
	if o.Transfers, err = newSource(c, log, open); err != nil {
		return nil, err
	}
	if c.CA != "" {
		if o.ListenerCAs, err = pki.ReadCertificates(c.CA); err != nil {
			return nil, err
		}
	}
	if c.HostCA != "" {
		roots, err := pki.ReadRoots(c.HostCA)
		if err != nil {
			return nil, err
		}
		o.Site = &pki.Site{Roots: roots, Field: pki.Field(c.HostField)}
	}
	s = server.New(o)
	return s, nil
}

// newAPI makes what answers people, and who vouches for them.
func newAPI(c config.Server, s *server.Server, log *slog.Logger) (*apiserver.API, *authn.People, error) {
	people, err := newPeople(c, log)
	if err != nil {
		return nil, nil, err
	}
	issuers, err := newIssuers(c, log)
	if err != nil {
		return nil, nil, err
	}
	known := authn.New(authn.Options{Directory: s.Directory(), People: people, Issuers: issuers})
	o := apiserver.Options{Server: s, Authn: known, Issuers: issuers, Log: log, Version: version.String()}
	if c.Listen != "" {
		o.Pages = slices.Concat(signin.Pages(signin.Options{Accounts: s.Accounts, Authn: known, Issuers: issuers,
			URL: c.URL, Log: log}), pages.New(pages.Options{Server: s, Log: log, Version: version.String(),
			SignIn: signin.LoginPath, SignOut: signin.LogoutPath}))
	}
	return apiserver.New(o), people, nil
}

// brokerNames are those that need no configuration, and those that the configuration has.
func brokerNames(c config.Server) []string {
	var names []string
	for _, k := range systems.All {
		if !k.Program {
			names = append(names, string(k.Name))
		}
	}
	for name := range c.Brokers {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// brokerOf is the batch system of a cell: one that the configuration names, or one that needs none.
func brokerOf(c config.Server, cell farm.Cell) (batch.System, error) {
	b, ok := c.Brokers[cell.Broker]
	if !ok {
		b.System = cell.Broker
	}
	system, err := openBroker(b)
	if err == nil && system == nil {
		err = &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig,
			Message: fmt.Sprintf("cell %s: no broker %q", cell.Name, cell.Broker),
			Hint:    "docs/guide/server.md says which there are, and how to declare one in [brokers] of server.toml"}
	}
	return system, err
}

// listen opens the socket and the port.
func listen(c config.Server, shown certificates, log *slog.Logger) (listeners []net.Listener, err error) {
	if c.Listen != "" {
		port, err := apiserver.ListenTLS(c.Listen, shown.get)
		if err != nil {
			return nil, cannotListen(c.Listen, "listen", err)
		}
		listeners = append(listeners, port)
	}
	if c.Socket != "" {
		socket, err := apiserver.ListenSocket(c.Socket, c.SocketMode)
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, cannotListen(c.Socket, "socket", err)
		}
		listeners = append(listeners, socket)
		private := api.PrivateSocket(c.Socket) // whose queue nobody else can fill
		if socket, err = apiserver.ListenSocket(private, 0o600); err == nil {
			listeners = append(listeners, socket)
		} else { // its path may be too long
			log.Warn("root has no socket of its own", "socket", private, "error", err)
		}
	}
	return listeners, nil
}

func cannotListen(where, key string, err error) error {
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeBadConfig, Message: "cannot listen on " + where, Err: err,
		Hint: "see `" + key + "` of server.toml; another server may run, or this user may not"}
}
