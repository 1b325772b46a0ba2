package cli

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

func (a *app) hostCommand() *cobra.Command {
	host := &cobra.Command{Use: "host", Short: "Look at this host"}
	host.AddCommand(&cobra.Command{
		Use: "show", Short: "Draw sockets, nodes, cores and threads, and who is on each thread", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.client().Host(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(h)
			}
			return a.showHost(h)
		},
	})
	return host
}

func (a *app) showHost(h api.Host) error {
	t, err := topologyOf(h)
	if err != nil {
		return err
	}
	holders := map[int]string{}
	for cpu, name := range h.Holders {
		if n, err := strconv.Atoi(cpu); err == nil {
			holders[n] = name
		}
	}
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		width = pictureWidth
	}
	fmt.Fprint(a.out, hostPicture(t, holders, width))
	fmt.Fprintf(a.out, "free CPUs %s, reserved %s; %d VMs, %d waiting; accelerator %s\n", orNone(h.Free), orNone(h.Reserved), h.VMs, h.Waiting, h.Accelerator)
	for _, w := range h.Warnings {
		fmt.Fprintf(a.out, "note: %s\n", w)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// topologyOf brings the wire form back into the planner's words, for the picture.
func topologyOf(h api.Host) (farm.Topology, error) {
	t := farm.Topology{Distance: h.Distance, CPU: farm.CPUModel{Vendor: h.CPU.Vendor, Name: h.CPU.Model, MaxMHz: h.CPU.MaxMHz, Flags: h.CPU.Flags}}
	var firstErr error
	set := func(text string) farm.CPUSet {
		s, err := farm.ParseCPUSet(text)
		if err != nil && firstErr == nil {
			firstErr = err
		}
		return s
	}
	for _, s := range h.Sockets {
		t.Sockets = append(t.Sockets, farm.Socket{ID: s.ID, CPUs: set(s.CPUs)})
		t.Online = t.Online.Or(set(s.CPUs))
	}
	for _, c := range h.Cores {
		t.Cores = append(t.Cores, farm.Core{Socket: c.Socket, Node: c.Node, Threads: set(c.Threads)})
	}
	for _, text := range h.L3 {
		t.L3 = append(t.L3, set(text))
	}
	for _, n := range h.Nodes {
		node := farm.Node{ID: n.ID, CPUs: set(n.CPUs), Memory: farm.Bytes(n.Memory), Free: farm.Bytes(n.Grantable)}
		for _, p := range n.Pages {
			node.Pages = append(node.Pages, farm.HugePages{Size: farm.Bytes(p.Size), Total: p.Total, Free: p.Grantable})
		}
		t.Nodes = append(t.Nodes, node)
	}
	return t, firstErr
}
