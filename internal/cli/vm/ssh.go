package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// CodeNoSSH is an error code; see docs/errors.md.
const CodeNoSSH farm.Code = "no-ssh"

// sshPrograms are where OpenSSH's client is looked for.
var sshPrograms = []string{"/usr/bin/ssh", "/usr/local/bin/ssh", "/bin/ssh"}

// sshCommands are the commands that log into VMs.
type sshCommands struct{ *app.App }

func (a sshCommands) sshCommand() *cobra.Command {
	var project, login string
	cmd := &cobra.Command{
		Use: "ssh [USER@]VM [-- COMMAND...]", Short: "Log in to a virtual machine of the fleet",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeSSH,
		Long: `Log in to a virtual machine of the fleet with OpenSSH, through the server and the VM's host.
The VM does not need an address that is reachable from here. The VM's host key is stored
under the VM's ID, so that another VM of the same name is not mistaken for it. If a key was
created for the VM, it is used automatically.`,
		Example: "  grange ssh atlas/web-1\n  grange ssh debian@web-1 -- uptime",
		RunE: func(cmd *cobra.Command, args []string) error {
			program, err := findSSH()
			if err != nil {
				return err
			}
			ref := args[0]
			if user, vm, ok := strings.Cut(ref, "@"); ok {
				login, ref = user, vm
			}
			_, v, err := vmCommands(a).fleetVM(cmd.Context(), ref, project)
			if err != nil {
				return err
			}
			if v.State != "running" {
				return &farm.Error{Kind: farm.Conflict, Code: farm.CodeVMState,
					Message: fullName(v) + " is " + v.State + reasonText(v),
					Hint:    "`grange vm start` it, or wait: `grange vm show` shows its state"}
			}
			own, err := app.OwnPath()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(knownHosts(v.ID)), 0o700); err != nil {
				return err
			}
			line := append([]string{"ssh"}, sshArguments(own, v, login)...)
			return os.NewSyscallError(program, syscall.Exec(program, append(line, args[1:]...), a.sshEnvironment()))
		},
	}
	projectFlag(cmd, &project)
	cmd.Flags().StringVarP(&login, "login", "l", "root", "`USER` to log in as")
	return cmd
}

func findSSH() (string, error) {
	for _, program := range sshPrograms {
		if isFile(program) {
			return program, nil
		}
	}
	return "", &farm.Error{Kind: farm.NotFound, Code: CodeNoSSH, Message: "no ssh is installed on this machine",
		Hint: "install OpenSSH's client: apt install openssh-client, dnf install openssh-clients"}
}

// knownHosts is the file of a VM's host keys.
func knownHosts(vm string) string { return filepath.Join(dataDir(), "known_hosts", vm) }

// sshArguments are those of ssh before a command. It finds the VM by our own program, whose path ssh hands to a shell.
func sshArguments(own string, v fleet.VM, login string) []string {
	proxy := strings.ReplaceAll(farm.ShellWords(own), "%", "%%") + " vm connect --wait 2m " + v.ID + " 22"
	args := []string{"-o", "ProxyCommand=" + proxy, "-o", "HostKeyAlias=" + v.ID, "-o",
		"UserKnownHostsFile=" + escaped(knownHosts(v.ID)), "-o", "GlobalKnownHostsFile=/dev/null", "-o",
		"StrictHostKeyChecking=accept-new", "-o", "CheckHostIP=no", "-l", login}
	if key := keyFile(v.ID); isFile(key) {
		args = append(args, "-i", key, "-o", "IdentitiesOnly=yes")
	}
	return append(args, "--", v.Name)
}

// escaped is a path for one of ssh's options: it has tokens that begin with %, and lists that spaces part.
func escaped(path string) string {
	return `"` + strings.ReplaceAll(path, "%", "%%") + `"`
}

// sshEnvironment takes a server that a flag names along to the program that ssh starts.
func (a sshCommands) sshEnvironment() []string {
	env := os.Environ()
	if a.Server != "" {
		env = append(env, fmt.Sprintf("GRANGE_SERVER=%s", a.Server))
	}
	return env
}

// completeSSH offers VMs, also behind USER@.
func (a sshCommands) completeSSH(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	user, vm, ok := strings.Cut(typed, "@")
	if !ok {
		return vmCommands(a).completeFleetVMs(cmd, args, typed)
	}
	names, directive := vmCommands(a).completeFleetVMs(cmd, args, vm)
	for i := range names {
		names[i] = user + "@" + names[i]
	}
	return names, directive
}
