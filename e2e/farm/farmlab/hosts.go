package farmlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// startHosts brings the hosts up, brings the image to them, and enrols all.
func (f *Farm) startHosts(ctx context.Context) error {
	for i := range f.options.Cells {
		f.say("starting host %d of %d", i+1, len(f.options.Cells))
		o := lab.Options{NoImage: true, Network: path(f.network.host(i)), Inside: true, Programs: f.programs,
			Config: "reserved_memory = \"256M\"\n" + f.options.Agent}
		if f.options.Slurm {
			o.SlurmNodes = []string{HostName(i)}
		}
		h, err := lab.Start(ctx, o)
		if err != nil {
			return err
		}
		f.Hosts = append(f.Hosts, h)
	}
	if err := f.image(ctx); err != nil {
		return err
	}
	f.say("enrolling the hosts")
	errs := make([]error, len(f.Hosts))
	var all sync.WaitGroup
	for i, h := range f.Hosts {
		all.Go(func() { errs[i] = f.enrol(ctx, h, i) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return f.awaitHosts(ctx)
}

// image builds the image on a host that is none of the farm's, for those reach no mirror of Debian, and takes it to all
// of them.
func (f *Farm) image(ctx context.Context) (err error) {
	f.say("building the image")
	builder, err := lab.Start(ctx, lab.Options{NoImage: true, Programs: f.programs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, builder.Close()) }()
	if out, err := builder.Grange(ctx, "image", "build", Image).CombinedOutput(); err != nil {
		return fmt.Errorf("image build: %w\n%s", err, out)
	}
	return builder.Share(ctx, Image, f.Hosts...)
}

// HostName is what the farm calls host number i.
func HostName(i int) string { return fmt.Sprintf("node-%d", i+1) }

func (f *Farm) enrol(ctx context.Context, h *lab.Lab, number int) error {
	token, err := f.Run(ctx, "host", "token", "create", "--cell", f.options.Cells[number])
	if err != nil {
		return err
	}
	file := h.Dir + "/join-token"
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return err
	}
	words := []string{"host", "join", "--config", h.Config, "--token-file", file, "--name", HostName(number)}
	for _, s := range f.Servers {
		words = append(words, "--server", s.URL)
	}
	cmd, err := h.Inside(ctx, words...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("host join: %w\n%s", err, out)
	}
	return nil
}

// awaitHosts waits until the servers have heard of all hosts.
func (f *Farm) awaitHosts(ctx context.Context) error {
	return Await(ctx, time.Minute, "all hosts are open", func() (bool, error) {
		out, err := f.Run(ctx, "host", "list")
		return strings.Count(out, " open") >= len(f.Hosts), err
	})
}

// Leaks returns what is left on the hosts although no VM is wanted.
func (f *Farm) Leaks(ctx context.Context) []string {
	var left []string
	for i, h := range f.Hosts {
		for _, what := range h.Leaks(ctx) {
			left = append(left, HostName(i)+": "+what)
		}
	}
	return left
}
