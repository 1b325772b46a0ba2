package job

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
)

// imageCommands are the commands of images of this host, and of the fleet's.
type imageCommands struct{ *app.App }

func (a imageCommands) imageCommand() *cobra.Command {
	image := &cobra.Command{Use: "image",
		Short: "Add, build, list, tag, withdraw and remove images of virtual machines",
		Long: `Manage the images that virtual machines start from. If a server is configured (--server,
$GRANGE_SERVER, client.toml, or its socket on this machine), list, show, add, tag, deprecate,
withdraw, activate and remove apply to the catalogue of the fleet. Otherwise, and with --local
or the agent's --socket, they apply to the images of this host, as build, import, verify, pin
and purge always do.`}
	image.AddCommand(a.imageList(), a.imageShow(), a.imageAdd(), a.imageBuild(), a.imageImport(), a.imageTag(),
		a.imageVerify(), a.imageRemove(), a.imagePurge())
	image.AddCommand(a.imageStates()...)
	image.AddCommand(a.imagePrestage(), a.imageInvalidate(), a.imageHosts())
	return image
}

func (a imageCommands) imageList() *cobra.Command {
	var fleet bool
	cmd := &cobra.Command{Use: "list", Short: "List the images of the fleet or of this host", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if fleet || !a.Here(cmd) {
				return a.OnServer(a.fleetImages)(cmd, args)
			}
			images, err := a.Client().Images(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(images)
			}
			t := output.NewColumns(a.Out)
			fmt.Fprintln(t, "NAME\tKIND\tSIZE\tCREATED\tDIGEST\tSITE\tSTATE")
			for _, i := range images {
				site := "-"
				if i.Site {
					site = "yes"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.19s\t%s\t%s\n", i.Name, i.Kind, mebibytes(i.Size),
					i.Created.Format(time.DateTime), i.Digest, site, output.Visible(imageState(i)))
			}
			return t.Flush()
		}}
	cmd.Flags().BoolVar(&fleet, "fleet", false, "list the images of the fleet, also where the agent's socket is named")
	return app.LocalFlag(cmd)
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1fM", float64(n)/float64(farm.MiB)) }

const siteUsage = "mark the image as trusted by the site: workers created from it receive the batch system's key"

func (a imageCommands) imageImport() *cobra.Command {
	var name string
	var site bool
	cmd := &cobra.Command{
		Use: "import FILE|DIR", Short: "Import a qcow2 or raw disk, or a directory with a kernel and an initrd",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if name == "" {
				base := filepath.Base(path)
				name = base[:len(base)-len(filepath.Ext(base))]
			}
			return a.makeImage(cmd, api.ImageRequest{Name: name, Path: path, Site: site})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the image (default: that of the file)")
	cmd.Flags().BoolVar(&site, "site", false, siteUsage)
	return cmd
}

func (a imageCommands) makeImage(cmd *cobra.Command, r api.ImageRequest) error {
	image, err := a.Client().MakeImage(cmd.Context(), r, func(message string) { fmt.Fprintln(a.Err, message) })
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(image)
	}
	fmt.Fprintf(a.Out, "%s  %s  %s\n", image.Name, mebibytes(image.Size), image.Digest)
	return nil
}

func (a imageCommands) imageRemove() *cobra.Command {
	done := func(name string) error {
		if a.JSON {
			return a.PrintJSON(map[string]string{"removed": name})
		}
		_, err := fmt.Fprintf(a.Out, "%s removed\n", name)
		return err
	}
	return app.LocalFlag(&cobra.Command{
		Use: "remove IMAGE", Aliases: []string{"rm"}, Short: "Remove an image", Args: cobra.ExactArgs(1),
		Long: `Remove a name, and with the last one the image. From the catalogue of the fleet: hosts keep
their copies for a day after their last use. ` + "`grange image invalidate DIGEST`" + ` removes them sooner.`,
		ValidArgsFunction: a.completeImages,
		RunE: a.either(func(cmd *cobra.Command, args []string) error {
			if err := a.Client().RemoveImage(cmd.Context(), args[0]); err != nil {
				return err
			}
			return done(args[0])
		}, func(ctx context.Context, c *fleet.Client, args []string) error {
			if err := c.Images.Remove(ctx, args[0]); err != nil {
				return err
			}
			return done(args[0])
		}),
	})
}
