// Package flavor reads OpenStack's words for the shape of a VM (hw: properties of flavors, hw_ properties of images) and its recorded placement cases, and puts them as requests to the planner.
package flavor
