package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/agent/transfers"
	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/transfer"
	"github.com/grange-project/grange/internal/uplink"
)

// child is a process of simulated hosts: all of an agent that has to do with images. It prints what each host has got
// now and then, and lives on when all have all, for the others.
type child struct {
	dir    string // has a directory for each host, with its identity
	hosts  string // their names, with commas
	digest string
	rate   int64
}

func (c *child) flags() {
	flag.StringVar(&c.dir, "child", "", "be hosts, below a `DIR`: for benchimages itself")
	flag.StringVar(&c.hosts, "child-hosts", "", "their names")
	flag.StringVar(&c.digest, "child-digest", "", "what they fetch")
	flag.Int64Var(&c.rate, "child-rate", 0, "bytes a second")
}

// line is what a child prints of a host.
type line struct {
	Host   string `json:"host"`
	Source int64  `json:"source"` // bytes from the server
	Peers  int64  `json:"peers"`
	Here   int64  `json:"here"`
	Whole  bool   `json:"whole"`
	Error  string `json:"error,omitempty"`
}

func (c *child) run(ctx context.Context) error {
	var all sync.WaitGroup
	var printing sync.Mutex
	print := func(l line) {
		printing.Lock()
		defer printing.Unlock()
		text, _ := json.Marshal(l) // plain data
		fmt.Println(string(text))
	}
	for _, name := range strings.Split(c.hosts, ",") {
		h, err := c.host(name)
		if err != nil {
			return err
		}
		all.Go(func() { h.Run(ctx) })
		all.Go(func() { c.fetch(ctx, h, print) })
	}
	all.Wait()
	return nil
}

// host is one of them. What it has fetched stays where it came to, and is given to others from there.
type host struct {
	*transfers.Transfers
	name string
	mu   sync.Mutex
	here []transfer.File
}

func (h *host) files() ([]transfer.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.here, nil
}

func (c *child) host(name string) (*host, error) {
	dir, h := filepath.Join(c.dir, name), &host{name: name}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	settings := transfers.Settings{Listen: "127.0.0.1:0", ReceiveRate: farm.Bytes(c.rate), SendRate: farm.Bytes(c.rate)}
	h.Transfers, err = transfers.New(transfers.Options{Dir: filepath.Join(dir, "transfers"), Files: h.files,
		Peers: uplink.NewPeers(root), Server: uplink.NewServer(root, nil),
		Config: func() transfers.Settings { return settings },
		Log:    slog.New(slog.NewTextHandler(os.Stderr, nil)).With("host", name)})
	return h, err
}

// fetch fetches the image.
func (c *child) fetch(ctx context.Context, h *host, print func(line)) {
	tell := func(l line) {
		if s, ok := h.Stats(c.digest); ok {
			l.Host, l.Source, l.Peers, l.Here = h.name, int64(s.Source), int64(s.Peers), int64(s.Here)
			print(l)
		}
	}
	told := time.Now()
	f, err := h.Fetch(ctx, c.digest, func(int64, int64, string) {
		if time.Since(told) > time.Second/4 {
			told = time.Now()
			tell(line{})
		}
	})
	if err != nil {
		if ctx.Err() == nil {
			print(line{Host: h.name, Error: err.Error()})
		}
		return
	}
	defer f.Close()
	sum, err := chunk.ParseSum("sha256:" + c.digest)
	info, gone := f.Stat()
	if err = errors.Join(err, gone); err != nil {
		print(line{Host: h.name, Error: err.Error()})
		return
	}
	h.mu.Lock()
	h.here = []transfer.File{{Sum: sum, Size: info.Size(), Path: f.Name()}}
	h.mu.Unlock()
	h.Changed()
	print(line{Host: h.name, Whole: true})
}
