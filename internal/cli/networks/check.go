// Package networks has the commands that measure networks.
package networks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/chart"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/netbench"
	"github.com/grange-project/grange/internal/netbench/answerer"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

type networkCommands struct{ *app.App }

// Commands are those below `grange network` that need no server.
func Commands(a *app.App) []*cobra.Command {
	c := networkCommands{a}
	return []*cobra.Command{c.checkCommand(), c.answerCommand()}
}

type checkFlags struct {
	config, key, name, svg   string
	between, networks, image string
	time                     time.Duration
	packets                  int
	show                     bool
}

// check is one as it is kept, and printed.
type check struct {
	Name    string          `json:"name"`
	Time    time.Time       `json:"time"`
	Peer    string          `json:"peer"`
	Result  netbench.Result `json:"result"`
	Verdict verdict.Verdict `json:"verdict"`
	Reason  string          `json:"reason"`
	Remedy  string          `json:"remedy,omitempty"`
	Between *pairOf         `json:"between,omitempty"` // nil: between here and Peer
}

// kept is what lies beside the host's other facts: the last check of each name.
type kept struct {
	Version int              `json:"version"`
	Checks  map[string]check `json:"checks"`
}

// mostPackets take 100 s where all are lost: the other side waits for two minutes until it hears of us again.
const mostPackets = 10_000

// keptFile is below state_dir.
const keptFile = "network-check.json"

func (a networkCommands) checkCommand() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use: "check [ADDRESS:PORT]", Short: "Measure the network between here and another host or VM",
		Args: cobra.MaximumNArgs(1),
		Long: "Measure the network to where `grange network answer` runs, or in a VM `grange-guest network-answer`:\n" +
			"throughput both ways by one TCP connection, then loss and latency by datagrams, of which the next\n" +
			"one is sent when the last one is back, or after 10 ms; and how many CPUs work meanwhile on both\n" +
			"sides, for whatever it is.\n\n" +
			"--between logs into two cloud VMs by `grange ssh`, with a key that needs no password, takes this\n" +
			"program along, and measures from the second one to the first one.\n\n" +
			"--networks starts two VMs on each of these networks of this host, by `grange exec`, and measures\n" +
			"between them: on a host that does nothing else, for what a network gives jobs.\n\n" +
			"The last result of each --name is kept as " + keptFile + " in the agent's state directory; --show\n" +
			"prints them all. Exit status 4: the verdict is bad.",
		Example: "  grange network check 10.0.3.7:40123 --key KEY --name vlan:120\n" +
			"  grange network check --networks bridge-br0,vlan-120 --svg networks.svg\n" +
			"  grange network check --between web-1,debian@web-2\n  grange network check --show --svg networks.svg",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.valid(args); err != nil {
				return err
			}
			c, err := app.ReadConfig(f.config, cmd.Flags().Changed("config"))
			if err != nil {
				return err
			}
			return a.check(cmd.Context(), c, f, strings.Join(args, ""))
		}}
	cmd.Flags().StringVar(&f.config, "config", app.DefaultConfig, "the agent's configuration `FILE`")
	cmd.Flags().StringVar(&f.key, "key", "", "`KEY` that the other side printed")
	cmd.Flags().StringVar(&f.name, "name", "", "`NAME` to keep the result by, as vlan:120 (default: the address)")
	cmd.Flags().StringVar(&f.between, "between", "", "measure between two cloud VMs, `VM,VM`")
	cmd.Flags().StringVar(&f.networks, "networks", "", "measure between two VMs on each of these `NETWORKS` here")
	cmd.Flags().StringVar(&f.image, "image", "", "`IMAGE` of these VMs (default: the caller's)")
	cmd.RegisterFlagCompletionFunc("image", a.CompleteImages)
	cmd.Flags().StringVar(&f.svg, "svg", "", "draw the results to `FILE` as well")
	cmd.Flags().DurationVar(&f.time, "time", 5*time.Second, "duration of each transfer")
	cmd.Flags().IntVar(&f.packets, "packets", 2000, fmt.Sprintf("number of datagrams, %d at most", mostPackets))
	cmd.Flags().BoolVar(&f.show, "show", false, "print the results that were kept, and measure nothing")
	return cmd
}

// valid refuses what makes no sense together.
func (f checkFlags) valid(args []string) error {
	switch {
	case f.show && len(args) > 0:
		return app.Usage("leave one of both out", "--show measures nothing, and an address is given")
	case f.between != "" && (f.show || f.key != "" || len(args) > 0):
		return app.Usage("", "--between goes without an address, --key and --show")
	case f.networks != "" && (f.show || f.between != "" || f.key != "" || f.name != "" || len(args) > 0):
		return app.Usage("results are kept by the networks' names",
			"--networks goes without an address, --key, --name, --between and --show")
	case f.image != "" && f.networks == "":
		return app.Usage("", "--image is of --networks")
	case f.show:
		return nil
	case f.networks != "" && f.timesValid():
		return validNetworks(f.networks)
	case f.between != "" && f.timesValid():
		_, _, err := pair(f.between)
		return err
	case f.between == "" && f.networks == "" && (len(args) == 0 || len(f.key) != answerer.KeySize):
		return app.Usage("`grange network answer` on the other side prints both", "an address and --key are needed")
	case !f.timesValid():
		return app.Usage("", "from 100ms to %v, and 1 to %d datagrams", answerer.Longest, mostPackets)
	}
	return nil
}

// validNetworks refuses names that are none, and networks in which VMs do not reach each other.
func validNetworks(text string) error {
	names := strings.Split(text, ",")
	for i, name := range names {
		switch {
		case name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, " \t\n") ||
			slices.Contains(names[:i], name):
			return app.Usage("--networks bridge-br0,vlan-120", "%q is no list of networks", text)
		case name == "user" || name == "none":
			return app.Usage("", "VMs with the network %s do not reach each other", name)
		}
	}
	return nil
}

func (f checkFlags) timesValid() bool {
	return f.time >= 100*time.Millisecond && f.time <= answerer.Longest && f.packets >= 1 && f.packets <= mostPackets
}

func (a networkCommands) check(ctx context.Context, c config.Agent, f checkFlags, peer string) error {
	k, err := readKept(filepath.Join(c.StateDir, keptFile))
	switch {
	case f.show && errors.Is(err, fs.ErrNotExist):
		return &farm.Error{Kind: farm.NotFound, Code: netbench.CodeCheck, Message: "nothing was measured on this host",
			Hint: "run `grange network check`", Err: err}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case f.show:
		return a.print(f, inOrder(k.Checks))
	case f.between != "":
		return a.checkBetween(ctx, c, f)
	case f.networks != "":
		return a.checkNetworks(ctx, c, f)
	}
	r, err := netbench.Run(ctx, netbench.Options{Peer: peer, Key: f.key, Time: f.time, Packets: f.packets,
		Tell: func(what string) { fmt.Fprintln(a.Err, what) }})
	if err != nil {
		return err
	}
	return a.keepAndPrint(c, f, checkOf(peer, f.name, r, time.Now()))
}

func (a networkCommands) keepAndPrint(c config.Agent, f checkFlags, one check) error {
	if err := a.keep(c, one); err != nil {
		return err
	}
	return a.judged(f, []check{one})
}

// keep keeps one result with those of other names.
func (a networkCommands) keep(c config.Agent, one check) error {
	file := filepath.Join(c.StateDir, keptFile)
	k, err := readKept(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k.Checks[one.Name] = one
	a.KeepResults(file, k)
	return nil
}

// judged prints results; a bad one is the exit status.
func (a networkCommands) judged(f checkFlags, all []check) error {
	if err := a.print(f, all); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(c check) bool { return c.Verdict == verdict.Bad }) {
		return app.ExitError{Status: app.ExitBad}
	}
	return nil
}

func checkOf(peer, name string, r netbench.Result, now time.Time) check {
	if name == "" {
		name = peer
	}
	v := netbench.Judge(r)
	return check{Name: name, Time: now.UTC().Truncate(time.Second), Peer: peer, Result: r, Verdict: v.Verdict,
		Reason: v.Reason, Remedy: v.Remedy}
}

func readKept(file string) (kept, error) {
	k := kept{Version: 1}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if k.Checks == nil {
		k.Checks = map[string]check{}
	}
	return k, err
}

func inOrder(checks map[string]check) (all []check) {
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		all = append(all, checks[name])
	}
	return all
}

func (a networkCommands) print(f checkFlags, all []check) error {
	return a.PrintResults(all, table(all), f.svg, func() string { return picture(all) })
}

// table is the results for people: a line a check, then what each verdict is for.
func table(all []check) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NETWORK\tTHERE\tCPUS\tBACK\tCPUS\tLATENCY\tP99\tLOSS\tVERDICT")
	for _, c := range all {
		r := c.Result
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f %%\t%s\n", c.Name, rate(r.There), cpus(r.There),
			rate(r.Back), cpus(r.Back), late(r.Flood.Median), late(r.Flood.P99), 100*r.Flood.Loss(), c.Verdict)
	}
	w.Flush()
	fmt.Fprintln(&b)
	for _, c := range all {
		fmt.Fprintf(&b, "%s: %s.", c.Name, c.Reason)
		if c.Remedy != "" {
			fmt.Fprintf(&b, " To do: %s.", c.Remedy)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

func rate(t netbench.Transfer) string { return fmt.Sprintf("%.1f Mb/s", t.Rate/1e6) }

// late is a time of answers; there is none where none came.
func late(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f ms", ms)
}

// cpus is how many worked on this side, and on the other.
func cpus(t netbench.Transfer) string { return fmt.Sprintf("%.1f/%.1f", t.CPUHere, t.CPUThere) }

func picture(all []check) string {
	var bars []chart.Bar
	for _, way := range []struct {
		name string
		of   func(netbench.Result) netbench.Transfer
	}{{"there", func(r netbench.Result) netbench.Transfer { return r.There }},
		{"back", func(r netbench.Result) netbench.Transfer { return r.Back }}} {
		for _, c := range all {
			t := way.of(c.Result)
			bars = append(bars, chart.Bar{Group: way.name, Name: c.Name, Value: t.Rate, Text: rate(t)})
		}
	}
	for _, c := range all {
		f := c.Result.Flood
		bars = append(bars, chart.Bar{Group: "latency", Name: c.Name, Value: f.Median,
			Text: fmt.Sprintf("%.3f ms, loss %.2f %%", f.Median, 100*f.Loss())})
	}
	return chart.Bars("grange network check", bars)
}

func (a networkCommands) answerCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "answer [ADDRESS:PORT]", Short: "Answer one check of the network to here", Args: cobra.MaximumNArgs(1),
		Long: "Answer one `grange network check` and end. Prints what to type on the other side. Listens on all\n" +
			"addresses and any free port, or on the one that is given, for TCP and UDP; only who has the key that\n" +
			"is printed is answered. In VMs `grange-guest network-answer [ADDRESS:PORT]` does the same.",
		Example: "  grange network answer\n  grange network answer 10.0.3.7:0",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), append(args, ":0")[0], limit)
		}}
	cmd.Flags().DurationVar(&limit, "time", 10*time.Minute, "end after this time, whether there was a check or not")
	return cmd
}

// ownAddresses are those of this machine by which others may reach it.
func ownAddresses() (texts []string) {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			texts = append(texts, n.IP.String())
		}
	}
	return texts
}

func (a networkCommands) answer(ctx context.Context, address string, limit time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := answerer.Listen(address)
	switch {
	case err != nil:
	case a.JSON:
		err = a.PrintJSON(answering{Address: s.Address(), Key: s.Key, Addresses: ownAddresses()})
	default:
		_, err = fmt.Fprintln(a.Out, s.Call())
	}
	if err == nil {
		err = s.Run(bounded)
	}
	if err == nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &farm.Error{Kind: farm.Unavailable, Code: netbench.CodeCheck, Message: "no check was answered", Err: err,
		Hint: "name an address of this machine, with a free port or 0, and let filters pass it"}
}
