package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// poolCommands are the commands of pools.
type poolCommands struct{ *app.App }

func (a *poolCommands) poolCommand() *cobra.Command {
	pool := &cobra.Command{Use: "pool", Short: "Show pools of VMs to work in"}
	pool.AddCommand(&cobra.Command{Use: "list", Short: "List the pools of this host that you may use",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.pools(cmd.Context())
			if err != nil {
				return err
			}
			return app.Table[api.Pool]{None: "no pool of this host is for you",
				Head: "NAME\tIMAGE\tAT MOST\tIDLE\tTOTAL\tVMS\tBY\tABOUT", Line: poolLine}.Print(a.App, all)
		}}, &cobra.Command{Use: "show POOL", Short: "Show one pool", Args: cobra.ExactArgs(1),
		ValidArgsFunction: app.CompleteFirst(a.names),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.pool(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(p)
		}})
	return pool
}

// pools are those of this host's agent. A host without an agent, from which jobs of a batch system are submitted, may
// have them in an agent's configuration: of these the batch system's alone can be used.
func (a *poolCommands) pools(ctx context.Context) ([]api.Pool, error) {
	all, err := a.Client().Pools().List(ctx)
	if err == nil || !errors.Is(err, api.ErrNoAgent) {
		return all, err
	}
	c, wrong := app.ReadConfig(app.DefaultConfig, false)
	if wrong != nil {
		return nil, errors.Join(err, wrong)
	}
	for _, p := range c.Pools {
		if p.Batch != "" {
			all = append(all, p.View())
		}
	}
	if len(all) == 0 {
		return nil, err
	}
	return all, nil
}

// pool is the one of a name; "": the only one there is, or the one called "default", or none where there are none.
func (a *poolCommands) pool(ctx context.Context, name string) (api.Pool, error) {
	all, err := a.pools(ctx)
	if err != nil {
		return api.Pool{}, err
	}
	wanted := cmp.Or(name, "default")
	if i := slices.IndexFunc(all, func(p api.Pool) bool { return p.Name == wanted }); i >= 0 {
		return all[i], nil
	}
	names := strings.Join(app.NamesOf(all, func(p api.Pool) string { return p.Name }), ", ")
	switch {
	case name == "" && len(all) == 0:
		return api.Pool{Detach: true}, nil
	case name == "" && len(all) == 1:
		return all[0], nil
	case name == "":
		return api.Pool{}, app.Usage("name one with --pool", "there are several pools: %s", names)
	}
	return api.Pool{}, app.Usage("there are: "+app.OrNone(names), "no pool %q of this host is for you", name)
}

func (a *poolCommands) names() []string {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	all, err := a.pools(ctx)
	if err != nil {
		return nil // the shell offers none
	}
	return app.NamesOf(all, func(p api.Pool) string { return p.Name })
}

func poolLine(p api.Pool) []any {
	return []any{p.Name, app.Dash(p.Image), app.Dash(mostOf(p)), lasting(p.Idle), lasting(p.Total), vmsOf(p),
		cmp.Or(p.Batch, "the agent"), app.Dash(p.About)}
}

func mostOf(p api.Pool) string {
	var most []string
	if p.MaxCPUs > 0 {
		most = append(most, farm.Count(p.MaxCPUs, "CPU"))
	}
	if p.MaxMemory > 0 {
		most = append(most, farm.Bytes(p.MaxMemory).String())
	}
	return strings.Join(most, ", ")
}

func vmsOf(p api.Pool) string {
	if p.AtOnce > 0 {
		return fmt.Sprintf("%d of %d", p.VMs, p.AtOnce)
	}
	return fmt.Sprint(p.VMs)
}

func lasting(seconds int64) string {
	if seconds == 0 {
		return "-"
	}
	return (time.Duration(seconds) * time.Second).String()
}

func (a *poolCommands) show(p api.Pool) error {
	if a.JSON {
		return a.PrintJSON(p)
	}
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, value)
		}
	}
	line("pool", p.Name)
	line("about", p.About)
	line("image", cmp.Or(p.Image, "the host's default"))
	line("images", strings.Join(p.Images, ", "))
	line("shape", p.Shape)
	line("shapes", strings.Join(p.Shapes, ", "))
	line("at most", mostOf(p))
	line("network", p.Network)
	if p.Home {
		line("home", "your home directory")
	}
	line("binds", strings.Join(p.Binds, " "))
	line("idle", lasting(p.Idle))
	line("total", lasting(p.Total))
	if p.PerUser > 0 {
		line("per user", farm.Count(p.PerUser, "VM"))
	}
	line("VMs", vmsOf(p))
	line("detach", map[bool]string{true: "yes", false: "no: a session ends with its terminal"}[p.Detach])
	line("by", strings.Join(append([]string{cmp.Or(p.Batch, "the agent")}, p.Options...), " "))
	_, err := fmt.Fprint(a.Out, b.String())
	return err
}
