package vm

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

// securityGroupCommands are the commands of security groups.
type securityGroupCommands struct{ *app.App }

const ruleHelp = "A rule is written as a direction, a protocol, ports and the other side:\n" +
	"  in tcp 22 from 192.0.2.0/24       SSH from a network\n" +
	"  in tcp 8000-8080 from group web   from the VMs of another group of the project\n" +
	"  out any                           whatever the VM begins\n" +
	"Protocols are any, tcp, udp, sctp and icmp. Without `from` or `to`, the other side is anybody."

func (a securityGroupCommands) securityGroupCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "security-group", Short: "Manage security groups: what VMs may receive and send",
		Long: "A security group belongs to a project. It has rules for the connections that may be made to its\n" +
			"VMs, and that they may make; answers pass. What no rule allows is dropped. Changed rules apply\n" +
			"to running VMs and to established connections.\n\n" +
			"Each project has the group default: SSH from the networks in `ssh_from` of the project, and all\n" +
			"that a VM begins."}
	rule := &cobra.Command{Use: "rule", Short: "Add and remove rules of a security group", Long: ruleHelp}
	rule.AddCommand(a.ruleCommand("add", "Add a rule to a security group", addRule),
		a.ruleCommand("remove", "Remove a rule from a security group", removeRule))
	cmd.AddCommand(a.list(), a.show(), a.create(), a.delete(), rule)
	return cmd
}

func securityRuleText(r fleet.SecurityRule) string {
	parsed, err := wire.ParseSecurityRule(r)
	if err != nil { // of a newer server
		return farm.Printable(strings.Join([]string{r.Direction, r.Protocol, r.Ports, r.CIDR, r.Group}, " "))
	}
	return parsed.String()
}

func (a securityGroupCommands) table() app.Table[fleet.SecurityGroup] {
	return app.Table[fleet.SecurityGroup]{None: "no security groups", Head: "GROUP\tRULES\tVMS",
		Line: func(g fleet.SecurityGroup) []any {
			return []any{g.Project + "/" + g.Name, len(g.Rules), app.Dash(strings.Join(g.VMs, " "))}
		}}
}

func (a securityGroupCommands) rules() app.Table[fleet.SecurityRule] {
	return app.Table[fleet.SecurityRule]{None: "no rules: nothing passes", Head: "RULE",
		Line: func(r fleet.SecurityRule) []any { return []any{securityRuleText(r)} }}
}

func (a securityGroupCommands) list() *cobra.Command {
	return a.table().Command(a.App, "List security groups and their VMs",
		func(ctx context.Context, c *fleet.Client) ([]fleet.SecurityGroup, error) {
			return c.SecurityGroups.List(ctx)
		})
}

func (a securityGroupCommands) show() *cobra.Command {
	return &cobra.Command{Use: "show PROJECT/NAME", Short: "Show the rules of a security group",
		Args: cobra.ExactArgs(1), RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			project, name, err := securityGroupNamed(args[0])
			if err != nil {
				return err
			}
			g, err := c.SecurityGroups.Get(ctx, project, name)
			if err != nil {
				return err
			}
			return a.print(g)
		})}
}

func (a securityGroupCommands) print(g fleet.SecurityGroup) error {
	if a.JSON {
		return a.PrintJSON(g)
	}
	return a.rules().Print(a.App, g.Rules)
}

// securityGroupNamed reads the name of a security group.
func securityGroupNamed(text string) (project, name string, err error) {
	project, name, ok := strings.Cut(text, "/")
	if !ok || project == "" || name == "" {
		return "", "", app.Usage("write PROJECT/NAME", "%q names no security group", text)
	}
	return project, name, nil
}

func (a securityGroupCommands) create() *cobra.Command {
	var rules []string
	var replace bool
	cmd := &cobra.Command{Use: "create PROJECT/NAME", Short: "Create a security group",
		Long: "Create a security group with the rules that are named. Without --rule nothing passes.\n" +
			"A group that exists keeps its rules, and the command fails; --replace gives it these.\n\n" + ruleHelp,
		Example: "  grange security-group create atlas/web --rule 'in tcp 443' --rule 'out any'\n" +
			"  grange vm create -p atlas -i sl9 -s medium --name web --network lan --security-group web",
		Args: cobra.ExactArgs(1), RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			project, name, err := securityGroupNamed(args[0])
			if err != nil {
				return err
			}
			g := fleet.SecurityGroup{Project: project, Name: name, Rules: []fleet.SecurityRule{},
				Revision: expected(replace)}
			for _, text := range rules {
				r, err := farm.ParseSecurityRule(strings.Fields(text))
				if err != nil {
					return err
				}
				g.Rules = append(g.Rules, wire.SecurityRule(r))
			}
			if g, err = c.SecurityGroups.Put(ctx, g); err != nil {
				return err
			}
			return a.print(g)
		})}
	cmd.Flags().StringArrayVar(&rules, "rule", nil, "`RULE`, for example \"in tcp 22 from 192.0.2.0/24\" (repeatable)")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace the rules of a group that exists")
	return cmd
}

func (a securityGroupCommands) delete() *cobra.Command {
	return &cobra.Command{Use: "delete PROJECT/NAME...", Short: "Delete security groups that no VM and no rule names",
		Args: cobra.MinimumNArgs(1), RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			return a.Each(args, "deleted", func(text string) error {
				project, name, err := securityGroupNamed(text)
				if err != nil {
					return err
				}
				return c.SecurityGroups.Delete(ctx, project, name)
			})
		})}
}

// ruleCommand changes the rules of a group by one.
func (a securityGroupCommands) ruleCommand(use, short string,
	change func([]fleet.SecurityRule, fleet.SecurityRule) ([]fleet.SecurityRule, error)) *cobra.Command {
	return &cobra.Command{Use: use + " PROJECT/NAME RULE...", Short: short, Long: short + ".\n\n" + ruleHelp,
		Example: "  grange security-group rule " + use + " atlas/web in tcp 443 from 192.0.2.0/24",
		Args:    cobra.MinimumNArgs(3),
		RunE: a.OnServer(func(ctx context.Context, c *fleet.Client, args []string) error {
			project, name, err := securityGroupNamed(args[0])
			if err != nil {
				return err
			}
			r, err := farm.ParseSecurityRule(args[1:])
			if err != nil {
				return err
			}
			g, err := c.SecurityGroups.Get(ctx, project, name)
			if err != nil {
				return err
			}
			if g.Rules, err = change(g.Rules, wire.SecurityRule(r)); err != nil {
				return err
			}
			if g, err = c.SecurityGroups.Put(ctx, g); err != nil {
				return err
			}
			return a.print(g)
		})}
}

func addRule(rules []fleet.SecurityRule, r fleet.SecurityRule) ([]fleet.SecurityRule, error) {
	if slices.Contains(rules, r) {
		return rules, nil
	}
	return append(rules, r), nil
}

func removeRule(rules []fleet.SecurityRule, r fleet.SecurityRule) ([]fleet.SecurityRule, error) {
	i := slices.Index(rules, r)
	if i < 0 {
		return nil, app.Usage("`grange security-group show` lists them", "it has no rule %q", securityRuleText(r))
	}
	return slices.Delete(rules, i, i+1), nil
}
