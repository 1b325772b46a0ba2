package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagerecipe"
)

func (a imageCommands) imageBuild() *cobra.Command {
	r, out := api.ImageRequest{}, ""
	cmd := &cobra.Command{
		Use:   "build micro|worker|cloud|RECIPE.toml [NAME]",
		Short: "Build an image from Debian packages, or from a recipe file",
		Long: `Build an image, and add it to this host under NAME, or write it to a file.

An image of kind "micro" is a kernel and an initramfs with a shell and what jobs need, from
the Debian package sources of this host. "worker" adds slurmd and munge, for nodes of Slurm.
"cloud" has an SSH server, for interactive use. --package adds packages.

RECIPE.toml is a recipe file: it makes one of these, a Debian disk, or a changed copy of
another disk, which is changed in a VM. With --output nothing is added to this host, and no
agent is needed: a disk becomes a qcow2 file, a kernel a directory for "grange image import".

Nothing is installed on the host.`,
		Example: `  grange image build micro
  grange image build debian.toml -o debian.qcow2`,
		Args: cobra.RangeArgs(1, 2), ValidArgs: []string{"micro", "worker", "cloud"},
		RunE: func(cmd *cobra.Command, args []string) error {
			packages, known := imagerecipe.Kind(args[0]).Packages()
			switch {
			case strings.HasSuffix(args[0], ".toml"):
				if len(r.Packages) > 0 {
					return app.Usage("write them into the recipe", "--package is not for recipes")
				}
				return a.buildRecipe(cmd, args, out, r.Site)
			case !known:
				return app.Usage("grange image build micro, or a recipe, RECIPE.toml", "%q can not be built", args[0])
			case out != "":
				return app.Usage(`write a recipe: kind = "micro"`, "--output is for recipes")
			}
			request := r
			request.Packages, request.Name = slices.Concat(packages, r.Packages), args[len(args)-1]
			return a.makeImage(cmd, request)
		},
	}
	cmd.Flags().StringSliceVar(&r.Packages, "package", nil, "additional Debian `PACKAGE` (repeatable)")
	cmd.Flags().BoolVar(&r.Site, "site", false, siteUsage)
	cmd.Flags().StringVarP(&out, "output", "o", "", "write the image of a recipe to `FILE`, which must not exist")
	return cmd
}

// buildRecipe builds with this process's rights, and adds the image to the host unless it goes to a file.
func (a imageCommands) buildRecipe(cmd *cobra.Command, args []string, out string, site bool) error {
	text, err := os.ReadFile(args[0])
	if err != nil {
		return app.Usage("give the path of a recipe", "%v", err)
	}
	recipe, err := imagerecipe.Parse(text)
	if err != nil {
		return err
	}
	if out != "" {
		if len(args) > 1 || site {
			return app.Usage("add the file later: grange image import", "a file has no NAME and no --site")
		}
		built, err := a.buildTo(cmd.Context(), recipe, args[0], out)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(built)
		}
		fmt.Fprintf(a.Out, "%s  %s  %s\n", built.Path, mebibytes(uint64(built.Size)), built.Digest)
		return nil
	}
	name := strings.TrimSuffix(filepath.Base(args[len(args)-1]), ".toml")
	dir, err := os.MkdirTemp("/var/tmp", "grange-recipe.")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	built, err := a.buildTo(cmd.Context(), recipe, args[0], filepath.Join(dir, "image"))
	if err != nil {
		return err
	}
	return a.makeImage(cmd, api.ImageRequest{Name: name, Path: built.Path, Site: site})
}

func (a imageCommands) buildTo(ctx context.Context, r imagerecipe.Recipe, file, out string) (imagerecipe.Built, error) {
	none := imagerecipe.Built{}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return none, err
	}
	if out, err = filepath.Abs(out); err != nil {
		return none, err
	}
	own, err := app.OwnPath()
	if err != nil {
		return none, err
	}
	cache := "/var/cache/grange/images"
	if os.Geteuid() != 0 {
		if cache, err = os.UserCacheDir(); err != nil {
			return none, err
		}
		cache = filepath.Join(cache, "grange/images")
	}
	built, err := imagerecipe.Build(ctx, r, imagerecipe.Options{Dir: dir, Out: out, Cache: cache,
		GuestBinary: filepath.Join(filepath.Dir(own), "grange-guest"),
		Progress:    func(text string) { fmt.Fprintln(a.Err, text) }})
	if _, known := errors.AsType[*farm.Error](err); err != nil && !known {
		err = &farm.Error{Kind: farm.Unavailable, Code: imagerecipe.CodeBadRecipe, Message: "the image cannot be built",
			Hint: "check the paths, their rights and free space", Err: err}
	}
	return built, err
}
