#!/usr/bin/env python3
"""Writes prompts for `kvasir dump-hidden`: chat, code and story requests put together from lists.

    prompts.py --part train --output train.txt
    prompts.py --part more --output more.txt
    prompts.py --part heldout --output heldout.txt

A part is fixed: the same prompts in the same order every time. Held-out prompts use subjects of their own,
which no training prompt names; neither part has any of data/speculation_prompts.json.
"""

import argparse
import itertools
import random

TASKS = """bake a loaf of bread|repair a dripping tap|learn the guitar|plan a birthday party|train a puppy
grow tomatoes on a balcony|paint a wooden fence|write a cover letter|save money every month|choose a laptop
clean a cast-iron pan|prepare for a job interview|pack for a hiking trip|start running|brew good coffee
take better photographs|learn a new language|organise a small kitchen|build a bookshelf|set up a home network
remove a stain from a shirt|make friends in a new city|write a short poem|give a speech|cook rice
change a car tyre|start a vegetable garden|stay focused while working|meditate|improve my handwriting
knit a scarf|plan a week of meals|read more books|teach a child to swim|find a good mentor
make a simple budget|reduce food waste|keep houseplants alive|sharpen a knife|sew a button
speak more clearly|learn to draw|prepare a presentation|choose running shoes|make pancakes
get rid of ants|insulate an old window|negotiate a salary|run a meeting|compost at home
write a thank-you note|remember names|learn chess|make yoghurt|fix a slow computer
back up my files|create a strong password|ask for feedback|handle a difficult customer|plan a road trip
""".replace("\n", "|").strip("|").split("|")

SUBJECTS = """photosynthesis|gravity|inflation|the water cycle|machine learning|the French Revolution|black holes
vaccines|supply and demand|plate tectonics|recursion|the immune system|democracy|electricity|DNA
the Roman Empire|climate change|a neural network|evolution|the stock market|volcanoes|the Renaissance
magnetism|compound interest|tides|the periodic table|a database index|encryption|the nervous system|rainbows
the internet|probability|a black box test|the Silk Road|antibiotics|a blockchain|the solar system|friction
a binary search|the heart|gross domestic product|glaciers|impressionism|nuclear fusion|the printing press|osmosis
an operating system|the Cold War|fermentation|a hash table|earthquakes|the moon landing|a cache|ecosystems
game theory|the human eye|a compiler|tectonic faults|jazz|the speed of light|an algorithm|soil erosion
""".replace("\n", "|").strip("|").split("|")

PAIRS = """a virus and a bacterium|weather and climate|a list and a tuple in Python|speed and velocity
an alligator and a crocodile|TCP and UDP|a novel and a short story|mass and weight|HTTP and HTTPS|a fruit and a vegetable
a comet and an asteroid|stocks and bonds|a process and a thread|a butterfly and a moth|RAM and storage
a simile and a metaphor|fission and fusion|a compiler and an interpreter|green tea and black tea|a lake and a pond
a stack and a queue|empathy and sympathy|an atom and a molecule|a city and a town|a debit card and a credit card
""".replace("\n", "|").strip("|").split("|")

CODE = """reverses a string|checks whether a number is prime|computes the factorial of a number|counts the words of a text
finds the largest number of a list|removes duplicates from a list|sorts a list of names|computes Fibonacci numbers
checks whether a word is a palindrome|merges two sorted lists|converts Celsius to Fahrenheit|counts vowels
finds the greatest common divisor|flattens a nested list|computes the average of numbers|searches a sorted list
reads a text file line by line|validates an email address|generates a random password|transposes a matrix
groups words by their first letter|computes the median|parses a date|finds the longest word|rotates a list
counts how often each character occurs|implements a stack|implements a queue|prints a multiplication table
checks balanced parentheses|converts a number to binary|finds common elements of two lists|computes a power
simulates rolling two dice|formats a price|splits a list into chunks|computes the distance between two points
""".replace("\n", "|").strip("|").split("|")

HEROES = """a young baker|an old sailor|a shy dragon|a lonely astronaut|a curious fox|a retired teacher|a small robot
a clever thief|a forgotten king|two sisters|a night nurse|a talking tree|a travelling musician|a boy with a kite
a beekeeper|a ghost|a mountain guide|a librarian|a painter|a stray cat|a clockmaker|a new student|a fisherman's daughter
""".replace("\n", "|").strip("|").split("|")
EVENTS = """finds a hidden door|loses something precious|makes an unlikely friend|must cross a frozen river
discovers an old map|saves the village|learns to forgive|hears a strange song|gets lost in the fog|wins a race
keeps a secret|returns home after many years|builds a machine|faces a great storm|meets a stranger at midnight
""".replace("\n", "|").strip("|").split("|")

PROBLEMS = """I often feel tired in the afternoon|My plants keep dying|I have a conflict with a colleague
I cannot decide which course to study|My phone's battery drains fast|I get nervous when I speak in public
My neighbour plays loud music|I forget what I read|I want to spend less time online|My bread never rises
I have too many meetings|My child does not like vegetables|I moved and know nobody|My back hurts from sitting
I procrastinate|My car makes a squeaking noise|I want to eat healthier|My team misses deadlines
""".replace("\n", "|").strip("|").split("|")

PEOPLE = ["my boss", "a customer", "my teacher", "a friend", "my team", "a supplier", "my aunt", "a hotel"]
MATTERS = """to ask for a day off|to say thank you for a gift|to apologise for a late delivery|to invite them to dinner
to ask for more time|to complain politely about noise|to confirm an appointment|to recommend a book
to share good news|to decline an offer""".replace("\n", "|").split("|")

THINGS = """washing machine leaves soap on the clothes|fridge is too warm|laptop gets very hot
printer prints empty pages|shower has no hot water|phone does not charge|car does not start in the cold
coffee tastes bitter|oven burns the edges of cakes|internet connection drops every evening|dog barks at every visitor
roses have black spots|knee hurts after long walks|headphones only play on one side|bread dough does not rise
tomato plants have yellow leaves|door sticks in summer|camera's pictures are blurry|toaster trips the fuse
watch runs late|baby wakes up every hour|roof leaks when it rains|vacuum cleaner has lost its power
guitar goes out of tune quickly|screen flickers|radiator stays cold at the bottom|keyboard types letters twice
lawn has brown patches|tent smells musty|cheesecake always cracks
""".replace("\n", "|").strip("|").split("|")

FEELINGS = """I want to learn to cook but I have little time|I feel lonely since my friends moved away
I am afraid of flying|I want to change my career at forty|I argue with my brother about money|I cannot relax on Sundays
I get bored at work|I want to stop biting my nails|I have to give a toast at a wedding|I am new in my team and shy
I spend too much on clothes|I want to run ten kilometres|I have a first date on Friday|I am stressed by my inbox
I want to ask for a raise|I forget names of people|I want to drink less coffee|I have to move house with two cats
I lost my motivation to study|I want to start a small business|I need to write a speech for my father's birthday
I find it hard to say no
""".replace("\n", "|").strip("|").split("|")

IN_LANGUAGES = """read a JSON file|connect to a database|loop over a dictionary|split a string|handle errors
write to a file|sort objects by a field|parse command-line arguments|make an HTTP request|format a date|create a class
read user input|run tasks in parallel|generate random numbers|join two lists of strings
measure how long something takes|write a unit test|filter a list|use regular expressions|copy a file|round a number
log messages|reverse an array|check a type
""".replace("\n", "|").strip("|").split("|")
LANGUAGES = ["Python", "JavaScript", "Java", "C++", "Bash", "Go"]

TERMS = """PRIMARY KEY and UNIQUE|WHERE and HAVING|UNION and UNION ALL|a view and a table|DELETE and TRUNCATE
GET and POST|a class and an object|git merge and git rebase|a thread and a coroutine|JSON and XML
let and var in JavaScript|a pointer and a reference|a mutex and a semaphore|REST and GraphQL
a container and a virtual machine|IPv4 and IPv6|an interface and an abstract class|== and === in JavaScript|SSD and HDD
a frontend and a backend|supervised and unsupervised learning|an acid and a base|baking soda and baking powder
a loan and a mortgage|a cold and the flu|jam and jelly
""".replace("\n", "|").strip("|").split("|")

LETTERS = """a friendly email to my neighbour asking them to feed my fish|a polite letter to the bank about a wrong fee
a short message to a colleague who is ill|an email to a professor asking for a recommendation
a complaint to an airline about lost luggage|an invitation to a housewarming party
a reply to a job offer asking for more time|a reminder to a customer about an unpaid invoice|a resignation letter
a message to my team about a new meeting time|a letter to my grandmother about my holidays
an email to a school asking about open places|a review of a small restaurant|a product description of a wooden lamp
a post about a charity run|a letter of motivation for an internship|an apology to a friend whose birthday I forgot
an email to my gym asking to pause my membership|a welcome message for new members of a book club
a notice about a lost cat
""".replace("\n", "|").strip("|").split("|")

WRITINGS = """a poem about autumn|a dialogue between the sun and the moon|a short story about a lift that never stops
a fairy tale about a modest princess|a short story about two rivals in a chess club|a haiku about rain
a limerick about a cook|a science-fiction story about a school on Mars|a short story about an old photograph
a monologue of a forgotten toy|a ghost story for children|a fable about a crow and a mirror
a short story about a letter that arrives too late|a scene in a busy kitchen
a story about a bridge that two villages share|a description of a market in the morning|a diary entry of a sailor
a song about a long road|a short mystery about a missing painting|a story about a hedgehog who finds its way home
""".replace("\n", "|").strip("|").split("|")

IDEAS = """a gift for a friend who likes to cook|a rainy Sunday with children|a healthy breakfast|names for a bakery
a team event without alcohol|topics for a school newspaper|a small bathroom|using up old bread|a science project
a cheap weekend trip|exercises without equipment|a costume party|a blog about gardening|questions for an interview
a quick dinner with eggs|games for a long car ride|saving water at home|decorating a balcony|a vegetarian barbecue
a book club
""".replace("\n", "|").strip("|").split("|")

HELD_TASKS = ["fold a paper crane", "choose a telescope", "restore an old chair", "learn to juggle", "host a quiz night",
              "make apple jam", "catch a train in a foreign country", "write a diary", "tie a tie", "start a podcast"]
HELD_SUBJECTS = ["coral bleaching", "the Industrial Revolution", "a linked list", "the greenhouse effect", "sonar",
                 "the Great Wall of China", "logarithms", "a firewall", "migration of birds", "sourdough"]
HELD_CODE = ["counts the lines of a file", "checks for a leap year", "computes a running total",
             "finds anagrams in a list of words", "draws a triangle of stars", "swaps two variables"]
HELD_HEROES = ["a postman on an island", "a snow leopard", "a violin maker", "twin inventors", "a tired superhero"]
HELD_EVENTS = ["receives a mysterious parcel", "forgets an important promise", "befriends a cloud"]
HELD_PROBLEMS = ["I burn everything I cook", "My cat wakes me at five", "I always run late",
                 "My essay is far too long"]


def task_forms(tasks):
    forms = ["How do I {}?", "Give me five tips to {}.", "Explain step by step how to {}.",
             "What do I need in order to {}, and what mistakes should I avoid?"]
    return [form.format(task) for task in tasks for form in forms]


def subject_forms(subjects):
    forms = ["What is {}?", "Explain {} to a ten-year-old.", "Write a paragraph about {}.",
             "Why does {} matter? Give three reasons.", "List the most important facts about {}."]
    return [form.format(subject) for subject in subjects for form in forms]


def code_forms(tasks):
    forms = ["Write a Python function that {}.", "Write a JavaScript function that {}. Explain it briefly.",
             "Show me a Python program that {}, with comments.", "Write a C function that {}."]
    return [form.format(task) for task in tasks for form in forms]


def story_forms(heroes, events):
    forms = ["Write a short story about {} who {}.", "Tell me a bedtime story: {} {}.",
             "Write the first page of a novel in which {} {}."]
    pairs = list(itertools.product(heroes, events))
    return [forms[i % len(forms)].format(*pair) for i, pair in enumerate(pairs)]


def advice_forms(problems):
    return [f"{problem}. {ask}" for problem in problems
            for ask in ("What can I do?", "Why is that?", "Do you have any ideas?")]


def training():
    mails = [f"Write a short email to {person} {matter}." for person in PEOPLE for matter in MATTERS]
    pairs = [form.format(pair) for pair in PAIRS
             for form in ("What is the difference between {}?", "Compare {} in a short list.")]
    return (task_forms(TASKS) + subject_forms(SUBJECTS) + code_forms(CODE) + story_forms(HEROES, EVENTS)
            + advice_forms(PROBLEMS) + mails + pairs)


def more():
    """Nearer to what people ask: troubles, code in several languages, letters, stories, ideas."""
    return ([f"My {thing}. {ask}" for thing in THINGS
             for ask in ("What could be the reasons?", "What should I do?", "How can I find out why?")]
            + [f"{feeling}. {ask}" for feeling in FEELINGS
               for ask in ("Give me some advice.", "What can I do?", "Where do I begin?")]
            + [f"How do I {task} in {language}?" for task in IN_LANGUAGES for language in LANGUAGES]
            + [form.format(term) for term in TERMS
               for form in ("What is the difference between {}?", "When do I use which: {}?")]
            + [f"Write {letter}." for letter in LETTERS]
            + [f"Write {writing}." for writing in WRITINGS]
            + [form.format(idea) for idea in IDEAS for form in ("Give me ten ideas for {}.", "I need ideas for {}.")])


def heldout():
    return (task_forms(HELD_TASKS)[::4] + subject_forms(HELD_SUBJECTS)[1::5] + code_forms(HELD_CODE)[::4]
            + story_forms(HELD_HEROES, HELD_EVENTS)[::2] + advice_forms(HELD_PROBLEMS)[::3])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["train", "more", "heldout"], required=True)
    parser.add_argument("--output", required=True, help="file to write, one prompt a line")
    parser.add_argument("--first", type=int, default=0, help="leave out so many in front")
    parser.add_argument("--count", type=int, help="write at most so many")
    args = parser.parse_args()
    prompts = {"train": training, "more": more, "heldout": heldout}[args.part]()
    random.Random(1).shuffle(prompts)
    end = None if args.count is None else args.first + args.count
    chosen = prompts[args.first:end]
    with open(args.output, "w", encoding="utf-8") as out:
        out.writelines(prompt + "\n" for prompt in chosen)
    print(f"{args.output}: {len(chosen)} of {len(prompts)} prompts")


if __name__ == "__main__":
    main()
