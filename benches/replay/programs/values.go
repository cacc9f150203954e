package main

import (
	crypto "crypto/rand"
	"fmt"
	"math/rand"
	"os"
	"sync"
	"time"
)

func main() {
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	key := make([]byte, 8)
	crypto.Read(key)
	fmt.Println(fmt.Sprintf("%x", key), os.Getpid())
	if mode == "time" {
		rand.Seed(time.Now().UnixNano())
		fmt.Println(time.Now().UnixNano(), rand.Int63())
	}
	if mode == "map" {
		for key := range map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5} {
			fmt.Print(key, " ")
		}
		fmt.Println()
	}
	results := make([]int, 8)
	var group sync.WaitGroup
	for number := range results {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			time.Sleep(time.Duration(number) * 20 * time.Millisecond)
			results[number] = number * number
		}(number)
	}
	group.Wait()
	fmt.Println(results)
	os.WriteFile("out/values.txt", []byte(fmt.Sprint(results)), 0o644)
}
