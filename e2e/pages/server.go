package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/oidclab"
	"github.com/grange-project/grange/e2e/serverlab"
)

// server is a `grange server` process with a fleet in its database, and some hosts that answer.
type server struct {
	*serverlab.Server
	token string
}

// answering is how many of the hosts are there, as `grange sim` has them: VMs run on these alone.
const answering = 3

const farmFile = `
[cells.general]
broker = "grange"
default = true

[cells.real]
broker = "grange"
projects = ["real"]

[projects.real]

[projects.people]
quota = { vms = 40, cpus = 160, memory = "640G", scratch = "2T" }

[users.ann]
logins = ["org:ann"]

[[grants]]
user = "ann"
role = "member"
project = "people"

[[grants]]
user = "ann"
role = "member"
project = "real"

[[grants]]
user = "ann"
role = "operator"

[users.rita]

[[grants]]
user = "rita"
role = "reader"
project = "people"

[shapes.tiny]
cpus = 1
memory = "192M"

[shapes.large]
cpus = 16
memory = "64G"
scratch = "100G"
page_size = "1G,2M,0"

[networks.lan]
bridge = "br0"
addresses = ["10.77.1.1-10.77.1.250/16"]
`

func newServer(dir, binary string) (*server, error) {
	process, err := serverlab.New(dir, binary)
	return &server{Server: process}, err
}

// begin starts the server with so many hosts and an issuer.
func (s *server) begin(ctx context.Context, hosts int, issuer *oidclab.Provider) error {
	if err := serverlab.Fill(ctx, s.Store(), hosts-answering); err != nil {
		return fmt.Errorf("writing the fleet: %w", err)
	}
	// hosts that are rows alone are not heard of again
	config := "silent_after = \"1h\"\n" + declared(issuer, s.Path("client.secret"))
	if err := s.Start(ctx, config); err != nil {
		return err
	}
	if err := s.Apply(ctx, farmFile); err != nil {
		return err
	}
	token, err := s.Grange(ctx, "token", "create", "--user", "ann")
	if err != nil {
		return err
	}
	s.token = strings.TrimSpace(token)
	if err := s.report(ctx); err != nil {
		return err
	}
	return s.simulate(ctx)
}

// simulate has some hosts answer.
func (s *server) simulate(ctx context.Context) error {
	token, err := s.Grange(ctx, "host", "token", "create", "--cell", "general", "--count", strconv.Itoa(answering))
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(s.Path("join"), []byte(token), 0o600),
		os.MkdirAll(s.Path("sim"), 0o700)); err != nil {
		return err
	}
	if _, err := s.Background("sim.log", "sim", "--hosts", strconv.Itoa(answering), "--prefix", "live-", "--dir",
		s.Path("sim"), "--token-file", s.Path("join"), "--server", s.URL, "--delay", "1s"); err != nil {
		return err
	}
	return s.AwaitHost(ctx, fmt.Sprintf("live-%05d", answering), func() string { return s.Log("sim.log") })
}

// realHost is one that runs virtual machines, in the cell real; the caller closes it.
func (s *server) realHost(ctx context.Context) (*lab.Lab, error) {
	h, err := lab.Start(ctx, lab.Options{Config: "reserved_memory = \"256M\"\n"})
	if err != nil {
		return nil, err
	}
	if err := s.Join(ctx, h, "real", "real-1", s.URL); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}
