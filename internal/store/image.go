package store

import (
	"strconv"

	"github.com/grange-project/grange/internal/farm"
)

// SettingCatalogue is the setting with the revision at which the catalogue of images was changed last: hosts, which
// have a copy, wait for that.
const SettingCatalogue = "catalogue"

// Images are the rows of the catalogue of images, in a transaction.
type Images struct{ t *Tx }

// ImagesOf are those that a transaction sees.
func ImagesOf(t *Tx) Images { return Images{t} }

func images() noun[farm.FleetImage] {
	return noun[farm.FleetImage]{kind: KindImage, what: "image",
		name:   func(i farm.FleetImage) string { return i.Digest },
		revise: func(i *farm.FleetImage, r int64) { i.Revision = r }}
}

func imageNames() noun[farm.ImageName] {
	return noun[farm.ImageName]{kind: KindImageName, what: "image",
		name:   func(n farm.ImageName) string { return n.Name },
		revise: func(n *farm.ImageName, r int64) { n.Revision = r }}
}

// touch notes that the catalogue is another one.
func (i Images) touch() error {
	return i.t.PutSetting(SettingCatalogue, strconv.AppendInt(nil, i.t.Revision(), 10))
}

// Changed is the revision at which the catalogue was changed last; 0: never.
func (i Images) Changed() (int64, error) {
	text, err := i.t.Setting(SettingCatalogue)
	if farm.IsKind(err, farm.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(text), 10, 64)
}

// Image is the one with a digest.
func (i Images) Image(digest string) (farm.FleetImage, error) { return images().get(i.t.sqlTx, digest) }

// All are all, by their digests.
func (i Images) All() ([]farm.FleetImage, error) { return images().list(i.t.sqlTx, "") }

// Put writes an image, new or not.
func (i Images) Put(v farm.FleetImage) error {
	if err := images().put(i.t.sqlTx, v); err != nil {
		return err
	}
	return i.touch()
}

// Name is what a name means.
func (i Images) Name(name string) (farm.ImageName, error) { return imageNames().get(i.t.sqlTx, name) }

// Names are all names, in their order.
func (i Images) Names() ([]farm.ImageName, error) { return imageNames().list(i.t.sqlTx, "") }

// PutName writes a name, new or not.
func (i Images) PutName(n farm.ImageName) error {
	if err := imageNames().put(i.t.sqlTx, n); err != nil {
		return err
	}
	return i.touch()
}

// DeleteName takes a name away, with what it has meant.
func (i Images) DeleteName(name string) error {
	if err := imageNames().drop(i.t.sqlTx, name); err != nil {
		return err
	}
	return i.touch()
}

func imageOrders() noun[farm.ImageOrder] {
	return noun[farm.ImageOrder]{kind: KindImageOrder, what: "order of images",
		name: func(o farm.ImageOrder) string { return o.ID },
		owner: func(o farm.ImageOrder) string {
			if o.Ended.IsZero() {
				return openOrder
			}
			return ""
		}}
}

// openOrder owns the orders that hosts are at, for they are looked for often.
const openOrder = "open"

// Order is the one with an ID.
func (i Images) Order(id string) (farm.ImageOrder, error) { return imageOrders().get(i.t.sqlTx, id) }

// Orders are all that are kept; OpenOrders those that hosts are at.
func (i Images) Orders() ([]farm.ImageOrder, error) { return imageOrders().list(i.t.sqlTx, "") }

// OpenOrders are those that hosts are at.
func (i Images) OpenOrders() ([]farm.ImageOrder, error) {
	return imageOrders().list(i.t.sqlTx, openOrder)
}

// PutOrder writes an order, new or not.
func (i Images) PutOrder(o farm.ImageOrder) error { return imageOrders().put(i.t.sqlTx, o) }

// DeleteOrder takes an order away, with its tasks.
func (i Images) DeleteOrder(id string) error {
	tasks, err := i.Tasks(id)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if err := imageTasks().drop(i.t.sqlTx, taskName(t)); err != nil {
			return err
		}
	}
	return imageOrders().drop(i.t.sqlTx, id)
}

// imageTasks belong to their host while it is at them, so that its wanted list is read without those of all others.
func imageTasks() noun[farm.ImageTask] {
	return noun[farm.ImageTask]{kind: KindImageTask, what: "task of images", name: taskName,
		owner: func(t farm.ImageTask) string {
			if t.State == farm.TaskActive {
				return t.Host
			}
			return ""
		}, change: func(t farm.ImageTask, c *Change) { c.Host = t.Host }}
}

func taskName(t farm.ImageTask) string { return t.Order + "/" + t.Host }

// Tasks are those of an order, by host.
func (i Images) Tasks(order string) (all []farm.ImageTask, err error) {
	n := imageTasks()
	err = i.t.each(func(r scanner) error {
		v, err := n.scan(r)
		all = append(all, v)
		return err
	}, "SELECT revision, body FROM objects WHERE kind = $1 AND name > $2 AND name < $3 ORDER BY name", string(n.kind),
		order+"/", order+"0") // "0" follows "/"
	return all, err
}

// ActiveTasks are those that a host is at.
func (i Images) ActiveTasks(host string) ([]farm.ImageTask, error) {
	return imageTasks().list(i.t.sqlTx, host)
}

// PutTask writes a task, new or not.
func (i Images) PutTask(t farm.ImageTask) error { return imageTasks().put(i.t.sqlTx, t) }
