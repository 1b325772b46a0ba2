// Package transfers is a host's part in bringing images to the hosts of its fleet: it fetches those that are wanted
// here, gives to other hosts what is here, and tells the server which that is.
package transfers

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/transfer"
	"github.com/grange-project/grange/internal/vmimage"
)

// Peers are the other hosts of the fleet, as this host knows them by their certificates.
type Peers interface {
	TLS() (*tls.Config, error)
	Host(tls.ConnectionState) (string, error)
	Address() (netip.Addr, error)
}

// Server is the fleet's server, as this host reaches it.
type Server interface {
	transfer.Requester
	Transfers(ctx context.Context, r fleet.TransferReport) (fleet.TransferAnswer, error)
}

// Options is what a host's transfers are made of.
type Options struct {
	Dir    string                          // where images on their way are kept
	Files  func() ([]transfer.File, error) // that are here, whole, the newest first
	Peers  Peers
	Server Server
	Config func() Settings // as it is now
	In     *transfer.Rate  // of all that this host receives, for others to share it; nil: one of its own
	Log    *slog.Logger
}

// Settings are what the host's administrator says of them.
type Settings struct {
	// ADDRESS:PORT at which other hosts get images; without ADDRESS, the one that leads to the server; "": nowhere
	Listen                string
	ReceiveRate, SendRate farm.Bytes // a second; 0: any number
}

// Transfers are those of one host.
type Transfers struct {
	Options
	fetcher *transfer.Fetcher
	giver   *transfer.Server
	out     *transfer.Rate
	news    chan struct{} // there is another image here

	mu      sync.Mutex
	address string // at which others find this host; "": they do not
	files   []transfer.File
	filesAt time.Time
}

const (
	filesAge  = 10 * time.Second // what is here is looked up again
	tryListen = 5 * time.Second
	rateAgain = 5 * time.Second // the configuration may have changed
)

// New returns the transfers of a host. Run lets other hosts in.
func New(o Options) (*Transfers, error) {
	o.In = cmp.Or(o.In, transfer.NewRate(0))
	t := &Transfers{Options: o, out: transfer.NewRate(0), news: make(chan struct{}, 1)}
	t.rates()
	var err error
	t.fetcher, err = transfer.NewFetcher(transfer.Options{Dir: o.Dir, Source: o.Server, Dial: t.dial, Files: t.here,
		Rate: t.In, Log: o.Log, Locate: transfer.LocateBy(t.report)})
	if err != nil {
		return nil, err
	}
	t.giver = &transfer.Server{Open: t.fetcher.Open, Caller: t.caller, Rate: t.out, Slots: givenAtOnce,
		EachOne: givenToOne, Log: o.Log}
	return t, nil
}

// Fetch brings a file of an image, by its SHA-256 in hex. Whoever wants the same waits for one transfer. The file stays
// until Forget. progress is told bytes, and why none come at the moment. Errors: those of transfer.Fetcher.
func (t *Transfers) Fetch(ctx context.Context, sum string, progress func(done, total int64, note string)) (*os.File,
	error) {
	digest, err := chunk.ParseSum("sha256:" + sum)
	if err != nil {
		return nil, err
	}
	return t.fetcher.Fetch(ctx, digest, func(p transfer.Progress) {
		note := p.Note
		if note == "" && p.Step != transfer.StepTransfer {
			note = p.Step
		}
		progress(int64(p.Done), int64(p.Total), note)
	})
}

// Forget removes what is kept of files that Fetch returned, once they are in the store.
func (t *Transfers) Forget(sums ...string) error {
	var errs []error
	for _, sum := range sums {
		if digest, err := chunk.ParseSum("sha256:" + sum); err == nil {
			errs = append(errs, t.fetcher.Forget(digest))
		}
	}
	t.Changed()
	return errors.Join(errs...)
}

// Changed has it looked up again which files are here, and the server told.
func (t *Transfers) Changed() {
	t.mu.Lock()
	t.filesAt = time.Time{}
	t.mu.Unlock()
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// Stats are what has come of a file, by its SHA-256 in hex, while it is on its way.
func (t *Transfers) Stats(sum string) (transfer.Stats, bool) {
	digest, err := chunk.ParseSum("sha256:" + sum)
	if err != nil {
		return transfer.Stats{}, false
	}
	return t.fetcher.Stats(digest)
}

// here are the files that are here, as they were a short time ago.
func (t *Transfers) here() []transfer.File {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.filesAt) < filesAge {
		return t.files
	}
	files, err := t.Files()
	if err != nil {
		t.Log.Error("images for other hosts", "error", err)
	}
	t.files, t.filesAt = files, time.Now()
	return files
}

// FilesOf returns the files of all images of a store.
func FilesOf(images *vmimage.Store) func() ([]transfer.File, error) {
	return func() (files []transfer.File, err error) {
		all, err := vmimage.All(images)
		for _, i := range all {
			for _, f := range i.Files {
				if sum, err := chunk.ParseSum("sha256:" + f.SHA256); err == nil {
					files = append(files, transfer.File{Sum: sum, Size: int64(f.Size),
						Path: filepath.Join(i.Dir, f.Name)})
				}
			}
		}
		return files, err
	}
}

// report sends the server what is here and what is wanted.
func (t *Transfers) report(ctx context.Context) (fleet.TransferAnswer, error) {
	t.mu.Lock()
	address := t.address
	t.mu.Unlock()
	return t.Server.Transfers(ctx, t.fetcher.Report(address))
}

func (t *Transfers) rates() {
	c := t.Config()
	t.In.Set(int64(c.ReceiveRate))
	t.out.Set(int64(c.SendRate))
}

// Run lets other hosts have what is here, and tells the server of it, until ctx ends. A host that has not joined a
// fleet does neither, and nil nothing.
func (t *Transfers) Run(ctx context.Context) {
	if t == nil {
		return
	}
	var all sync.WaitGroup
	all.Go(func() { t.serve(ctx) })
	all.Go(func() { t.reports(ctx) })
	for ctx.Err() == nil {
		t.rates()
		sleep(ctx, rateAgain)
	}
	all.Wait()
}

// reports sends the server what is here: when that changes, and often enough to be believed.
func (t *Transfers) reports(ctx context.Context) {
	timer := time.NewTimer(tryListen)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-t.news:
		}
		next := transfer.HoldsEvery
		if len(t.fetcher.Holds()) > 0 {
			if _, err := t.report(ctx); err != nil {
				t.Log.Debug("cannot report to the server which images are here", "error", err)
				next /= 4
			}
		}
		timer.Reset(next)
	}
}

// dial connects to another host, which must be the one that the server named.
func (t *Transfers) dial(ctx context.Context, p transfer.Peer) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := t.Peers.TLS()
	if err != nil {
		return nil, err
	}
	raw, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, err
	}
	conn := raw.(*tls.Conn)
	host, err := t.Peers.Host(conn.ConnectionState())
	if err == nil && host != p.Host {
		err = fmt.Errorf("who answers at %s is host %s, and not %s", p.Address, host, p.Host)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// caller is the host that asks, by its certificate; the handshake has verified it.
func (t *Transfers) caller(r *http.Request) string {
	host, _ := t.Peers.Host(*r.TLS)
	return host
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
