package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/uplink"
)

// joinFlags are those of `grange host join`.
type joinFlags struct {
	config, tokenFile, name, machineID, certificate, key string
	replace                                              bool
}

func (a hostCommands) hostJoinCommand() *cobra.Command {
	var f joinFlags
	cmd := &cobra.Command{
		Use: "join --server URL --token-file FILE", Short: "Join this host to a server's fleet", Args: cobra.NoArgs,
		Long: "Join this host to a fleet. The command sends a join token, which `grange host token create`\n" +
			"created on the server, and receives a certificate with which the agent authenticates to the\n" +
			"server. The token is sent only to a server with the certificate that is named in the token.\n" +
			"A running agent connects within seconds.",
		Example: "  grange host join --server https://server.example.org:7480 --token-file /root/join\n" +
			"  ssh server grange host token create --cell main | grange host join --server " +
			"https://server.example.org:7480 --token-file -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := app.ReadConfig(f.config, cmd.Flags().Changed("config"))
			if err != nil {
				return err
			}
			return a.joinHost(cmd.Context(), c, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", app.DefaultConfig, "`FILE` with the agent's configuration")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the join token; - reads standard input")
	flags.StringVar(&f.name, "name", "", "`NAME` of the host in the fleet (default: its host name)")
	flags.BoolVar(&f.replace, "replace", false, "replace the earlier installation of this host")
	flags.StringVar(&f.machineID, "machine-id", "/etc/machine-id", "`FILE` with the ID of this machine")
	flags.StringVar(&f.certificate, "certificate", "",
		"`FILE` with a certificate of the site's authority, if that authority certifies hosts")
	flags.StringVar(&f.key, "key", "", "`FILE` with the key of --certificate")
	cmd.MarkFlagsRequiredTogether("certificate", "key")
	return cmd
}

func (a hostCommands) joinHost(ctx context.Context, c config.Agent, f joinFlags) error {
	server := a.Server
	if server == "" && len(c.Server.URLs) > 0 {
		server = c.Server.URLs[0]
	}
	if server == "" || f.tokenFile == "" {
		return app.Usage("grange host join --server https://HOST:PORT --token-file FILE",
			"a server and a join token are needed")
	}
	token, err := app.JoinToken(f.tokenFile)
	if err != nil {
		return err
	}
	own, err := os.Hostname()
	if err != nil {
		return err
	}
	machine, err := os.ReadFile(f.machineID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, err := app.OpenIdentityDir(c)
	if errors.Is(err, fs.ErrPermission) {
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeUsage, Message: "only root can join this host", Err: err,
			Hint: "run it as root"}
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	id, err := uplink.Join(ctx, uplink.JoinOptions{Dir: dir, Server: server, Token: token,
		Name: strings.ToLower(cmp.Or(f.name, own)), Replace: f.replace, MachineID: string(machine),
		CertificateFile: f.certificate, KeyFile: f.key})
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(map[string]any{"host": id.Host, "name": id.Name, "servers": id.Servers})
	}
	fmt.Fprintf(a.Out, "joined as %s (%s); the agent links itself to %s\n", id.Name, id.Host,
		strings.Join(id.Servers, ", "))
	return nil
}
