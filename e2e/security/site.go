package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/e2e/lab"
)

// site is what is attacked: programs of one commit, and the hosts and servers that run them. What several attacks can
// share is started by the first that asks for it.
type site struct {
	dir      string
	commit   string // whose programs they are
	source   string // the tree that they were built from
	programs string // directory with grange and grange-guest

	host  *lab.Lab
	fleet *farmlab.Farm
	own   []*lab.Lab // hosts of single attacks
}

func newSite(ctx context.Context, from string) (*site, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("the attacks need root: they run agents, and commands of other accounts")
	}
	dir, err := os.MkdirTemp("/tmp", "gs")
	if err != nil {
		return nil, err
	}
	s := &site{dir: dir, source: lab.Source(), programs: filepath.Join(dir, "bin")}
	if err := s.build(ctx, from); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) build(ctx context.Context, from string) (err error) {
	if err := os.Chmod(s.dir, 0o755); err != nil { // other accounts pass through
		return err
	}
	if err := copySelf(s.path("self")); err != nil {
		return err
	}
	if s.commit = "this tree"; from != "" {
		if s.commit, err = lab.Commit(ctx, from); err != nil {
			return err
		}
		s.source = s.path("source")
		if err := lab.TakeOut(ctx, s.commit, s.source); err != nil {
			return err
		}
	}
	fmt.Println("building the programs of", s.commit)
	return lab.BuildFrom(ctx, s.source, s.programs)
}

// lab is the host that attacks share: an agent with the micro image.
func (s *site) lab(ctx context.Context) (*lab.Lab, error) {
	if s.host != nil {
		return s.host, nil
	}
	fmt.Println("starting a host")
	l, err := lab.Start(context.WithoutCancel(ctx), lab.Options{Programs: s.programs, Source: s.source})
	if err == nil {
		s.host = l
	}
	return l, err
}

// start brings up a host of an attack's own. It lives until all attacks are over.
func (s *site) start(ctx context.Context, o lab.Options) (*lab.Lab, error) {
	o.Programs, o.Source = s.programs, s.source
	l, err := lab.Start(ctx, o)
	if err == nil {
		s.own = append(s.own, l)
	}
	return l, err
}

// farmFile is what the shared farm's administrator wrote: a cell for each host.
const farmFile = `
[cells.general]
broker = "grange"
default = true

[cells.other]
broker = "grange"

[projects.people]

[shapes.tiny]
cpus = 1
memory = "192M"
` + farmlab.Network

// farm is the farm that attacks share: a server on SQLite, and two hosts, of the cells general and other.
func (s *site) farm(ctx context.Context) (*farmlab.Farm, error) {
	if s.fleet != nil {
		return s.fleet, nil
	}
	fmt.Println("starting a farm")
	f, err := farmlab.Start(context.WithoutCancel(ctx),
		farmlab.Options{Cells: []string{"general", "other"}, Farm: farmFile, Programs: s.programs})
	if err == nil {
		s.fleet = f
	}
	return f, err
}

func (s *site) close() error {
	var errs []error
	for _, l := range append(s.own, s.host) {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if s.fleet != nil {
		errs = append(errs, s.fleet.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
