package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lvm"
)

// Area is where one kind of data of VMs lies. One that is full is nobody's but its own.
type Area struct {
	Path        string     // directory of files
	Quota       farm.Bytes // that its files may take, whatever its file system has; 0: no bound
	VolumeGroup string     // for scratch disks on LVM; "": there are none
	ThinPool    string     // of that group; "": there are no thin ones
	Wipe        lvm.Wipe   // when the blocks of a thick volume are cleared
}

// Areas are those of a host.
type Areas struct{ Jobs, Cloud, Images Area }

type areaFile struct {
	Path        string `toml:"path"`
	Quota       string `toml:"quota"`
	VolumeGroup string `toml:"volume_group"`
	ThinPool    string `toml:"thin_pool"`
	Wipe        string `toml:"wipe"`
}

type imagesAreaFile struct {
	Path  string `toml:"path"`
	Quota string `toml:"quota"`
}

type areasFile struct {
	Jobs   areaFile       `toml:"jobs"`
	Cloud  areaFile       `toml:"cloud"`
	Images imagesAreaFile `toml:"images"`
}

func defaultAreas() areasFile {
	area := areaFile{Quota: "0", Wipe: string(lvm.WipeStart)}
	return areasFile{area, area, imagesAreaFile{Quota: "0"}}
}

// areas fills what is left out: jobs are below state_dir, cloud VMs where jobs are, unless they have volumes or a path
// of their own, and images beside them.
func (f areasFile) areas(state string) (a Areas, err error) {
	if a.Jobs, err = f.Jobs.area(filepath.Join(state, "vm")); err != nil {
		return a, fmt.Errorf("areas.jobs.%w", err)
	}
	if a.Cloud, err = f.Cloud.area(a.Jobs.Path); err != nil {
		return a, fmt.Errorf("areas.cloud.%w", err)
	}
	if a.Cloud.VolumeGroup == "" {
		a.Cloud.VolumeGroup, a.Cloud.ThinPool, a.Cloud.Wipe = a.Jobs.VolumeGroup, a.Jobs.ThinPool, a.Jobs.Wipe
	}
	images := areaFile{Path: f.Images.Path, Quota: f.Images.Quota, Wipe: string(lvm.WipeStart)}
	if a.Images, err = images.area(filepath.Join(state, "images")); err != nil {
		return a, fmt.Errorf("areas.images.%w", err)
	}
	switch same := a.Jobs.Path == a.Cloud.Path; {
	case same && a.Jobs.Quota != a.Cloud.Quota && a.Cloud.Quota != 0:
		return a, errors.New("areas.cloud.quota: cloud VMs share the path of jobs, and its quota; name a path")
	case same && (a.Cloud.VolumeGroup != a.Jobs.VolumeGroup || a.Cloud.ThinPool != a.Jobs.ThinPool ||
		a.Cloud.Wipe != a.Jobs.Wipe):
		return a, errors.New("areas.cloud.volume_group: cloud VMs share the path of jobs, and its volumes; name a path")
	case a.Images.Path == a.Jobs.Path || a.Images.Path == a.Cloud.Path:
		return a, errors.New("areas.images.path: images need a directory of their own")
	}
	return a, nil
}

func (f areaFile) area(path string) (a Area, err error) {
	a = Area{Path: path, VolumeGroup: f.VolumeGroup, ThinPool: f.ThinPool, Wipe: lvm.Wipe(f.Wipe)}
	if f.Path != "" {
		a.Path = filepath.Clean(f.Path)
	}
	if a.Quota, err = farm.ParseBytes(f.Quota); err != nil {
		return a, fmt.Errorf("quota: %w", err)
	}
	switch {
	case f.Path != "" && !filepath.IsAbs(f.Path):
		return a, fmt.Errorf("path: %q is not an absolute path", f.Path)
	case f.VolumeGroup != "" && !lvm.ValidName(f.VolumeGroup):
		return a, fmt.Errorf("volume_group: %q is not a name that LVM takes", f.VolumeGroup)
	case f.ThinPool != "" && (!lvm.ValidName(f.ThinPool) || f.VolumeGroup == ""):
		return a, fmt.Errorf("thin_pool: %q is not a pool of a volume_group", f.ThinPool)
	case !slices.Contains(lvm.Wipes, a.Wipe):
		return a, fmt.Errorf("wipe: invalid value %q: expected start, end or discard", f.Wipe)
	}
	return a, nil
}
