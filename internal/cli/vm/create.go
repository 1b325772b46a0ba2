package vm

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

// createFlags are those of `grange vm create` and `grange why`.
type createFlags struct {
	request  fleet.VMRequest
	memory   string
	disks    app.DiskFlags
	keys     []string
	userData string
	tags     []string
	expires  string
	wait     waitFlags
}

// registerSize are the flags of what a VM is to be; `grange why` has them too.
func (f *createFlags) registerSize(cmd *cobra.Command) {
	r := &f.request
	cmd.Flags().StringVarP(&r.Project, "project", "p", os.Getenv("GRANGE_PROJECT"),
		"`PROJECT` that owns the VMs, or $GRANGE_PROJECT")
	cmd.Flags().StringVarP(&r.Image, "image", "i", "", "name or digest of the `IMAGE`")
	cmd.Flags().StringVarP(&r.Shape, "shape", "s", "", "name of the `SHAPE`")
	cmd.Flags().IntVar(&r.Count, "count", 1, "number of VMs, named NAME-1, NAME-2 and so on; all are created, or none")
	cmd.Flags().IntVarP(&r.CPUs, "cpus", "c", 0, "number of vCPUs, instead of the shape's")
	cmd.Flags().StringVarP(&f.memory, "memory", "m", "",
		"`SIZE` of the memory, for example 4G, instead of the shape's")
	f.disks.Register(cmd.Flags())
	cmd.Flags().StringVar(&r.CPUModel, "cpu-model", "",
		"CPU `MODEL`: host-passthrough, host-model, maximum or the name of a model")
	cmd.Flags().BoolVar(&r.Display, "display", false, "give the VMs a screen, keyboard and mouse, for the server's pages")
	cmd.Flags().StringVar(&r.Cell, "cell", "", "`CELL` to use, one of the project's")
	cmd.Flags().StringVar(&r.Network, "network", "", "`NETWORK` of the fleet")
	cmd.Flags().StringVar(&r.Group, "group", "", "server `GROUP` of the project, which places VMs together or apart")
	cmd.Flags().StringSliceVar(&r.Needs, "need", nil,
		"`LABEL` that the host must have: gpu, kind=amd-7302, rack!=b3 (repeatable)")
}

// size reads the sizes that are written with units.
func (f *createFlags) size() error {
	if f.memory != "" {
		n, err := farm.ParseBytes(f.memory)
		if err != nil {
			return err
		}
		f.request.Memory = uint64(n)
	}
	var err error
	if f.request.Scratch, f.request.Disks, err = f.disks.Read(); err != nil {
		return err
	}
	if f.request.Count == 1 {
		f.request.Count = 0 // the same, and older servers need not know
	}
	return nil
}

func (a vmCommands) vmCreate() *cobra.Command {
	f := &createFlags{}
	cmd := &cobra.Command{
		Use: "create --project PROJECT --name NAME [flags]", Short: "Create virtual machines in the fleet",
		Args: cobra.NoArgs,
		Long: "Create virtual machines of a project; the server chooses their hosts.\n\n" +
			"Without --key and --new-key, your public SSH key from ~/.ssh is installed in the VMs. If you\n" +
			"have none, a key is created, and its private half is stored on this machine only, for\n" +
			"`grange ssh`.",
		Example: "  grange vm create -p atlas -i sl9 -s medium --name web --count 3 --wait",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(time.Now()); err != nil {
				return err
			}
			return a.createVMs(cmd.Context(), f)
		},
	}
	f.registerSize(cmd)
	r := &f.request
	cmd.Flags().StringVarP(&r.Name, "name", "n", "",
		"`NAME` of the VM, unique in its project; also its host name, unless the network has a list of host names")
	cmd.Flags().StringSliceVar(&r.SecurityGroups, "security-group", nil,
		"security `GROUP` of the project, which says what the VMs may receive and send (repeatable)")
	cmd.Flags().StringVar(&r.Address, "address", "", "static `ADDRESS` in the network (default: a leased address)")
	cmd.Flags().StringArrayVarP(&f.keys, "key", "k", nil, "`FILE` with public SSH keys (repeatable)")
	cmd.Flags().BoolVar(&r.NewKey, "new-key", false, "create an SSH key, and store its private half for grange ssh")
	cmd.Flags().StringVar(&f.userData, "user-data", "", "`FILE` with user data for cloud-init; - reads standard input")
	cmd.Flags().StringSliceVar(&f.tags, "tag", nil, "tag to set, `KEY=VALUE` (repeatable)")
	cmd.Flags().StringVar(&f.expires, "expires", "",
		"`TIME` at which the VM is deleted: 12h, 30d or 2027-01-31T18:00:00Z")
	f.wait.register(cmd, "the VMs run")
	cmd.MarkFlagRequired("name")
	a.completeCatalogue(cmd)
	return cmd
}

// complete reads what the flags name.
func (f *createFlags) complete(now time.Time) error {
	if f.request.Project == "" {
		return app.Usage("--project PROJECT, or GRANGE_PROJECT", "no project is named")
	}
	if err := f.size(); err != nil {
		return err
	}
	var err error
	if f.request.Tags, err = app.ParseTags(f.tags); err != nil {
		return err
	}
	if f.request.Expires, err = app.ParseExpiry(f.expires, now); err != nil {
		return err
	}
	if f.userData != "" {
		if f.request.UserData, err = readInput(f.userData); err != nil {
			return app.Usage("--user-data FILE", "user data: %v", err)
		}
	}
	return f.readKeys()
}

// maxUserData is the largest file for cloud-init that is read; the server may take less.
const maxUserData = 1 << 20

// readInput reads a file, or standard input for "-".
func readInput(name string) ([]byte, error) {
	var from io.Reader = os.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxUserData+1))
	if err == nil && len(text) > maxUserData {
		err = fmt.Errorf("%s has more than %v", name, farm.Bytes(maxUserData))
	}
	return text, err
}

// readKeys reads public keys: those that were named, or else the user's own, or else none, and one is made.
func (f *createFlags) readKeys() error {
	files := f.keys
	if len(files) == 0 && !f.request.NewKey {
		files = ownKeys()
		f.request.NewKey = len(files) == 0
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return app.Usage("--key FILE, a file that ends with .pub", "SSH key: %v", err)
		}
		if strings.Contains(string(text), "PRIVATE KEY") {
			return app.Usage("name the .pub file beside it", "%s is a private key", file)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				f.request.Keys = append(f.request.Keys, line)
			}
		}
	}
	return nil
}

// ownKeys is the user's public SSH key, of the kinds that ssh takes by itself the first that is there.
func ownKeys() []string {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	for _, name := range []string{"id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub"} {
		if file := filepath.Join(home, ".ssh", name); isFile(file) {
			return []string{file}
		}
	}
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func (a vmCommands) createVMs(ctx context.Context, f *createFlags) error {
	c, err := a.Fleet()
	if err != nil {
		return err
	}
	made, err := createAgain(ctx, c, f.request)
	if err != nil {
		return err
	}
	if err := a.keepKeys(made); err != nil {
		return err
	}
	for _, v := range made {
		if !a.JSON {
			fmt.Fprintf(a.Out, "%s  %s\n", fullName(v), v.ID)
		}
	}
	made, err = f.wait.until(ctx, a.App, c, made)
	if a.JSON {
		for i := range made { // it is in its file, and need not be in a log
			made[i].PrivateKey = ""
		}
		if printed := a.PrintJSON(made); err == nil {
			err = printed
		}
	}
	return err
}

// createAgain asks once more where the connection broke, under the same key: the server makes nothing twice.
func createAgain(ctx context.Context, c *fleet.Client, r fleet.VMRequest) ([]fleet.VM, error) {
	key := api.NewID()
	made, err := c.VMs.Create(ctx, key, r)
	for range 2 {
		if err == nil || app.CodeOf(err) != "no-agent" { // it was answered, or nobody was there at all
			break
		}
		made, err = c.VMs.Create(ctx, key, r)
	}
	return made, err
}

// keepKeys writes a private key that the server made, for each VM that has it.
func (a vmCommands) keepKeys(made []fleet.VM) error {
	text := ""
	for _, v := range made {
		text = max(text, v.PrivateKey)
	}
	if text == "" {
		return nil
	}
	for _, v := range made {
		file := keyFile(v.ID)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return fmt.Errorf("the VM is made, but its private key could not be kept: %w", err)
		}
	}
	fmt.Fprintf(a.Err, "private key: %s\n", keyFile(made[0].ID))
	return nil
}

// dataDir is where what belongs to VMs is kept on the user's machine.
func dataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "grange")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return filepath.Join(home, ".local", "share", "grange")
}

func keyFile(vm string) string { return filepath.Join(dataDir(), "keys", vm) }

// completeCatalogue offers what the server has for flags that name some of it.
func (a vmCommands) completeCatalogue(cmd *cobra.Command) {
	offer := func(flag string, names func(context.Context, *fleet.Client) ([]string, error)) {
		if cmd.Flags().Lookup(flag) == nil {
			return
		}
		app.Complete(cmd, flag, func() []string {
			c, err := a.Fleet()
			if err != nil {
				return nil
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer cancel()
			words, _ := names(ctx, c)
			return slices.Sorted(slices.Values(words))
		})
	}
	offer("project", func(ctx context.Context, c *fleet.Client) ([]string, error) {
		all, err := c.Projects(ctx)
		return app.NamesOf(all, func(p fleet.Project) string { return p.Name }), err
	})
	offer("shape", func(ctx context.Context, c *fleet.Client) ([]string, error) {
		all, err := c.Shapes(ctx)
		return app.NamesOf(all, func(s fleet.Shape) string {
			return fmt.Sprintf("%s\t%d CPUs, %v", s.Name, s.CPUs, farm.Bytes(s.Memory))
		}), err
	})
	offer("image", func(ctx context.Context, c *fleet.Client) ([]string, error) {
		all, err := c.Images.List(ctx)
		return app.NamesOf(all, func(i fleet.Image) string { return fmt.Sprintf("%s\ton %d hosts", i.Name, i.Hosts) }),
			err
	})
	offer("network", func(ctx context.Context, c *fleet.Client) ([]string, error) {
		all, err := c.Networks(ctx)
		return app.NamesOf(all, func(n fleet.Network) string { return n.Name }), err
	})
	offer("cell", func(ctx context.Context, c *fleet.Client) ([]string, error) {
		all, _, err := c.Cells.List(ctx)
		return app.NamesOf(all, func(n fleet.Cell) string { return n.Name }), err
	})
}
