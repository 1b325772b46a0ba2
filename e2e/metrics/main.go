// Command metrics puts faults into a real host, one by one, and holds Prometheus' alarms to what was done: each fault
// raises its alarm and no other, and when it is mended the alarm ends. The host has libvirtd, QEMU and an agent of its
// own, a server, and a Prometheus with the rules of this tree, in which a minute is a second. It measures a scrape of a
// server with 10,000 hosts, too. It needs root, and what scripts/install-packages test and metrics install. The last
// line is JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/serverlab"
)

// figures are the line at the end.
type figures struct {
	Faults  int     `json:"faults"`
	Raised  int     `json:"raised"` // of which the alarm came, and no other
	Failed  int     `json:"failed"`
	Hosts   int     `json:"hosts"`     // of the server that is scraped
	Scrape  float64 `json:"scrape_ms"` // the slowest of some
	Seconds float64 `json:"seconds"`
}

// mostScrape is how many milliseconds a scrape of a server may take.
const mostScrape = 1000

func main() {
	binary := flag.String("grange", "bin/grange", "the `PROGRAM`")
	hosts := flag.Int("hosts", 10000, "how many the server that is scraped has")
	only := flag.String("only", "", "only faults of these `ALARMS`, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began, f := time.Now(), &figures{Hosts: *hosts}
	err := errors.Join(f.scrape(ctx, *binary), f.faults(ctx, *binary, *only))
	if err != nil {
		f.Failed++
		fmt.Fprintln(os.Stderr, "metrics:", err)
	}
	f.Seconds = math.Round(time.Since(began).Seconds())
	text, _ := json.Marshal(f)
	fmt.Println(string(text))
	if f.Failed > 0 {
		os.Exit(1)
	}
}

// scrape measures the server of a large fleet.
func (f *figures) scrape(ctx context.Context, binary string) error {
	dir, err := os.MkdirTemp("", "grange-metrics-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := serverlab.New(dir, binary)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := serverlab.Fill(ctx, s.Store(), f.Hosts); err != nil {
		return err
	}
	at, err := serverlab.FreeAddress()
	if err != nil {
		return err
	}
	if err := s.Start(ctx, fmt.Sprintf("silent_after = \"1h\"\nmetrics_listen = %q\n", at)); err != nil {
		return err
	}
	const scrapes = 5
	for range scrapes {
		began := time.Now()
		text, err := get(ctx, "http://"+at+"/metrics")
		if err != nil {
			return err
		}
		if !strings.Contains(text, "grange_server_hosts{") {
			return fmt.Errorf("a scrape has no hosts:\n%s", text)
		}
		f.Scrape = max(f.Scrape, float64(time.Since(began).Microseconds())/1000)
	}
	fmt.Printf("a scrape of a server with %d hosts takes %.0f ms\n", f.Hosts, f.Scrape)
	if f.Scrape > mostScrape {
		return fmt.Errorf("that is more than %d ms", mostScrape)
	}
	return nil
}

// faults tries all that are wanted.
func (f *figures) faults(ctx context.Context, binary, only string) (err error) {
	dir, err := os.MkdirTemp("", "gm") // short: sockets lie below it
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := startSite(ctx, dir, binary)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	p, err := startPrometheus(ctx, filepath.Join(dir, "prometheus"), s)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.await(ctx, "no alarm, before anything is done"); err != nil {
		return err
	}
	wanted := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	for _, one := range all {
		if len(wanted) > 0 && !slices.Contains(wanted, one.alarm) || ctx.Err() != nil {
			continue
		}
		f.Faults++
		began := time.Now()
		if err := try(ctx, s, p, one); err != nil {
			f.Failed++
			fmt.Printf("FAILED  %-24s %s\n        %v\n", one.alarm, one.what, err)
			continue
		}
		f.Raised++
		fmt.Printf("raised  %-24s %s (%.0f s)\n", one.alarm, one.what, time.Since(began).Seconds())
	}
	return context.Cause(ctx)
}

// try puts one fault in, awaits its alarm and no other, mends it, and awaits the alarm's end.
func try(ctx context.Context, s *site, p *prometheus, one fault) error {
	mend, err := one.put(ctx, s)
	if mend == nil {
		mend = func() error { return nil }
	}
	if err == nil {
		err = p.await(ctx, "the alarm", one.alarm)
	}
	return errors.Join(err, mend(), p.await(ctx, "its end"))
}
