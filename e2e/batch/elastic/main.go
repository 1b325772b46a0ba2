// Command elastic shows that VMs join Slurm as nodes, and what it costs: a real slurmctld, real VMs with a real slurmd
// in them, CLOUD nodes and dynamic ones, and a VM that is killed under its job. It prints one line of JSON, and ends
// with 1 when something is not as it should be or is left behind. It needs root and the packages of
// `scripts/install-packages batch`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	only := flag.String("only", "", "run these `cases` alone, as queue,crash")
	keep := flag.Bool("keep", false, "leave the cluster running until INT, to look at it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	if err := run(ctx, *only, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "elastic:", err)
		os.Exit(1)
	}
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05.0")}, args...)...)
}

func run(ctx context.Context, only string, keep bool) (err error) {
	e, err := startElastic(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			e.logs(os.Stderr)
		}
		if keep {
			progress("cluster in %s, namespace %s, agent %s", e.dir, e.ns, e.hosts[0].Socket)
			<-ctx.Done()
		}
		err = errors.Join(err, e.close())
	}()
	var f figures
	for _, c := range cases {
		if asked := slices.Contains(strings.Split(only, ","), c.name); !asked && (only != "" || onRequest[c.name]) {
			continue
		}
		progress("%s", c.name)
		if err := c.run(ctx, e, &f); err != nil {
			return fmt.Errorf("%s: %w; not as in an idle cluster: %s", c.name, err, strings.Join(e.wrong(ctx), "; "))
		}
	}
	left := e.wrong(ctx)
	for _, h := range e.hosts {
		left = append(left, h.Leaks(ctx)...)
	}
	f.Left = len(left)
	if err := print(f); err != nil {
		return err
	}
	if f.Left > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(left, "; "))
	}
	return nil
}
