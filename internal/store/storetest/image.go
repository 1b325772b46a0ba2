package storetest

import (
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/store"
)

func anImage() farm.FleetImage {
	return farm.FleetImage{Digest: "sha256:aa", Kind: "disk", Format: "qcow2", Size: farm.GiB,
		VirtualSize: 2 * farm.GiB, Manifest: []byte(`{"digest":"sha256:aa"}`), Servers: []string{"https://a"}, Note: "n", OS: "Debian 12",
		MinDisk: 3 * farm.GiB, MinMemory: farm.GiB, Properties: map[string]string{"hw_cpu_sockets": "1"},
		Projects: []string{"p"}, State: farm.ImageDeprecated, Successor: "b", Reason: "old", Source: "https://b/c",
		Verdict: "signed by d", By: "ann", Created: noon, Removed: true}
}

func anImageName() farm.ImageName {
	return farm.ImageName{Name: "debian", Digest: "sha256:aa",
		Versions: []farm.ImageVersion{{Digest: "sha256:aa", Since: noon, By: "ann"}}}
}

func anImageOrder() farm.ImageOrder {
	return farm.ImageOrder{ID: "o1", Op: farm.ImageFetch, What: "debian", AtOnce: 2, By: "ann", Created: noon}
}

func anImageTask() farm.ImageTask {
	return farm.ImageTask{Order: "o1", Host: "h1", Op: farm.ImageFetch, Name: "debian", Digests: []string{"sha256:aa"},
		State: farm.TaskActive, Reason: "r", Done: 1, Total: 2, Began: noon}
}

// images: rows are kept whole, and each change of them is one of the catalogue, which hosts wait for.
func images(s *suite) {
	db := s.new()
	changed := func(what string, want int64) {
		s.Helper()
		s.view(db, func(tx *store.Tx) error {
			got, err := store.ImagesOf(tx).Changed()
			same(s, what, want, err, got)
			return nil
		})
	}
	changed("an empty catalogue", 0)
	image, name := anImage(), anImageName()
	put := func(tx *store.Tx) error { return store.ImagesOf(tx).Put(image) }
	image.Revision = s.update(db, put)
	changed("an image", image.Revision)
	name.Revision = s.update(db, func(tx *store.Tx) error { return store.ImagesOf(tx).PutName(name) })
	changed("a name", name.Revision)
	s.view(db, func(tx *store.Tx) error {
		rows := store.ImagesOf(tx)
		got, err := rows.Image(image.Digest)
		same(s, "image", image, err, got)
		all, err := rows.All()
		same(s, "all", []farm.FleetImage{image}, err, all)
		named, err := rows.Name(name.Name)
		same(s, "name", name, err, named)
		names, err := rows.Names()
		same(s, "names", []farm.ImageName{name}, err, names)
		return nil
	})
	gone := s.update(db, func(tx *store.Tx) error { return store.ImagesOf(tx).DeleteName(name.Name) })
	changed("a deletion", gone)
	for what, do := range map[string]func(store.Images) error{
		"image":          func(i store.Images) error { _, err := i.Image("sha256:none"); return err },
		"name":           func(i store.Images) error { _, err := i.Name(name.Name); return err },
		"name, deletion": func(i store.Images) error { return i.DeleteName(name.Name) },
	} {
		s.fails(what, s.in(db, func(tx *store.Tx) error { return do(store.ImagesOf(tx)) }), store.CodeAbsent)
	}
}

// imageOrders: a host finds the tasks that it is at, and is woken by each change of one.
func imageOrders(s *suite) {
	db, order, task := s.new(), anImageOrder(), anImageTask()
	waiting := task
	waiting.Host, waiting.State = "h2", farm.TaskWaiting
	other := task
	other.Order = "o10" // no order's tasks are those of one whose ID begins alike
	first := s.update(db, func(tx *store.Tx) error {
		rows := store.ImagesOf(tx)
		for _, t := range []farm.ImageTask{task, waiting, other} {
			if err := rows.PutTask(t); err != nil {
				return err
			}
		}
		return rows.PutOrder(order)
	})
	ended := order
	ended.Ended = noon.Add(time.Hour)
	s.view(db, func(tx *store.Tx) error {
		rows := store.ImagesOf(tx)
		got, err := rows.Order("o1")
		same(s, "order", order, err, got)
		open, err := rows.OpenOrders()
		same(s, "open", []farm.ImageOrder{order}, err, open)
		tasks, err := rows.Tasks("o1")
		same(s, "tasks", []farm.ImageTask{task, waiting}, err, tasks)
		active, err := rows.ActiveTasks("h1")
		same(s, "of a host", []farm.ImageTask{task, other}, err, active)
		active, err = rows.ActiveTasks("h2")
		same(s, "of one that waits", nil, err, active)
		return nil
	})
	waiting.State = farm.TaskActive
	s.update(db, func(tx *store.Tx) error { return store.ImagesOf(tx).PutTask(waiting) })
	changes, _, err := db.Changes(s.ctx, first, 10)
	same(s, "its host is woken", []store.Change{{Revision: first + 1, Kind: store.KindImageTask, ID: "o1/h2", Host: "h2"}},
		err, changes)
	s.update(db, func(tx *store.Tx) error { return store.ImagesOf(tx).PutOrder(ended) })
	s.update(db, func(tx *store.Tx) error { return store.ImagesOf(tx).DeleteOrder("o1") })
	s.view(db, func(tx *store.Tx) error {
		rows := store.ImagesOf(tx)
		open, err := rows.OpenOrders()
		same(s, "open", nil, err, open)
		tasks, err := rows.Tasks("o1")
		same(s, "tasks of none", nil, err, tasks)
		tasks, err = rows.Tasks("o10")
		same(s, "tasks of another", []farm.ImageTask{other}, err, tasks)
		_, err = rows.Order("o1")
		s.fails("deleted", err, store.CodeAbsent)
		return nil
	})
}
